//! What makes a type of parameters a method.

use serde::{Serialize, de::DeserializeOwned};

/// A method of the interface: a type that holds its parameters, with the type of what it returns.
pub trait Method: Serialize + DeserializeOwned {
    /// The full name, `io.steward.Status`.
    const NAME: &'static str;
    /// What it returns.
    type Reply: Serialize + DeserializeOwned;
}

/// Declares that a type of parameters is a method with that name and reply.
macro_rules! method {
    ($parameters:ty, $name:literal, $reply:ty) => {
        impl Method for $parameters {
            const NAME: &'static str = $name;
            type Reply = $reply;
        }
    };
}
