//! The errors of the interface, and how they travel.

use serde_json::{Map, Value};

/// What a call can be answered with instead of its reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApiError {
    /// The caller may not do this.
    #[error("permission denied: {reason}")]
    PermissionDenied {
        /// The rule.
        reason: String,
    },
    /// A parameter is missing or wrong.
    #[error("{parameter}: {reason}")]
    InvalidParameter {
        /// Its name.
        parameter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such process, or it ended meanwhile.
    #[error("there is no process {pid}")]
    NoSuchTask {
        /// The process that was asked for.
        pid: i32,
    },
    /// There is no room for the reservation.
    #[error("{reason}")]
    AdmissionRefused {
        /// What there is no room for, in a sentence.
        reason: String,
        /// The bandwidth that was asked for.
        bandwidth: f64,
        /// The threshold of admission.
        admit_below: f64,
    },
    /// There is no such domain, or it has gone meanwhile.
    #[error("there is no domain {domain}; steward domain list shows all")]
    NoSuchDomain {
        /// The name that was asked for.
        domain: String,
    },
    /// There is a domain of that name already.
    #[error("there is a domain {domain} already; choose another name, or change that one")]
    DomainExists {
        /// The name that was asked for.
        domain: String,
    },
    /// A level of domains would reserve more than it has.
    #[error("{reason}")]
    Overcommitted {
        /// What of: `cpu`, `memory` or `disk`.
        resource: String,
        /// What is there, what was asked, what is left, in a sentence.
        reason: String,
        /// What was asked for: a fraction, or bytes of memory.
        asked: f64,
        /// What the others of the level have reserved.
        reserved: f64,
        /// The most that the level may reserve.
        limit: f64,
    },
    /// Nothing enforces reservations now.
    #[error("no mechanism enforces reservations now: {reason}")]
    MechanismGone {
        /// Why.
        reason: String,
    },
    /// The kernel refused.
    #[error("{reason}")]
    MechanismFailed {
        /// What was tried, and what to do.
        reason: String,
    },
    /// The daemon has no such method; it may be older than the client.
    #[error("the daemon has no method {method}; is it older than this program?")]
    MethodNotFound {
        /// The method that was called.
        method: String,
    },
    /// The method answers with a stream: call it with "more".
    #[error("this method answers with a stream: call it with \"more\"")]
    ExpectedMore,
    /// An error that this library does not know.
    #[error("the daemon answered {name} {parameters}")]
    Other {
        /// Its full name.
        name: String,
        /// Its parameters, as JSON.
        parameters: String,
    },
}

impl ApiError {
    /// The error's full name and parameters, as they travel.
    pub fn to_wire(&self) -> (String, Map<String, Value>) {
        use serde_json::json;
        let (name, parameters) = match self {
            ApiError::PermissionDenied { reason } => {
                ("io.steward.PermissionDenied", json!({ "reason": reason }))
            }
            ApiError::InvalidParameter { parameter, reason } => {
                ("io.steward.InvalidParameter", json!({ "parameter": parameter, "reason": reason }))
            }
            ApiError::NoSuchTask { pid } => ("io.steward.NoSuchTask", json!({ "pid": pid })),
            ApiError::AdmissionRefused { reason, bandwidth, admit_below } => (
                "io.steward.AdmissionRefused",
                json!({ "reason": reason, "bandwidth": bandwidth, "admit_below": admit_below }),
            ),
            ApiError::NoSuchDomain { domain } => ("io.steward.NoSuchDomain", json!({ "domain": domain })),
            ApiError::DomainExists { domain } => ("io.steward.DomainExists", json!({ "domain": domain })),
            ApiError::Overcommitted { resource, reason, asked, reserved, limit } => (
                "io.steward.Overcommitted",
                json!({ "resource": resource, "reason": reason, "asked": asked, "reserved": reserved, "limit": limit }),
            ),
            ApiError::MechanismGone { reason } => ("io.steward.MechanismGone", json!({ "reason": reason })),
            ApiError::MechanismFailed { reason } => {
                ("io.steward.MechanismFailed", json!({ "reason": reason }))
            }
            ApiError::MethodNotFound { method } => {
                ("org.varlink.service.MethodNotFound", json!({ "method": method }))
            }
            ApiError::ExpectedMore => ("org.varlink.service.ExpectedMore", json!({})),
            ApiError::Other { name, parameters } => {
                let parameters = serde_json::from_str(parameters).unwrap_or_default();
                return (name.clone(), parameters);
            }
        };
        let Value::Object(parameters) = parameters else { unreachable!("written as objects above") };
        (name.to_owned(), parameters)
    }

    /// Reads an error that came over the wire; one that is not known becomes [`ApiError::Other`].
    pub fn from_wire(name: &str, parameters: &Map<String, Value>) -> Self {
        let text = |key: &str| parameters.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |key: &str| parameters.get(key).and_then(Value::as_f64).unwrap_or_default();
        match name {
            "io.steward.PermissionDenied" => ApiError::PermissionDenied { reason: text("reason") },
            "io.steward.InvalidParameter" => {
                ApiError::InvalidParameter { parameter: text("parameter"), reason: text("reason") }
            }
            "io.steward.NoSuchTask" => ApiError::NoSuchTask { pid: number("pid") as i32 },
            "io.steward.AdmissionRefused" => ApiError::AdmissionRefused {
                reason: text("reason"),
                bandwidth: number("bandwidth"),
                admit_below: number("admit_below"),
            },
            "io.steward.NoSuchDomain" => ApiError::NoSuchDomain { domain: text("domain") },
            "io.steward.DomainExists" => ApiError::DomainExists { domain: text("domain") },
            "io.steward.Overcommitted" => ApiError::Overcommitted {
                resource: text("resource"),
                reason: text("reason"),
                asked: number("asked"),
                reserved: number("reserved"),
                limit: number("limit"),
            },
            "io.steward.MechanismGone" => ApiError::MechanismGone { reason: text("reason") },
            "io.steward.MechanismFailed" => ApiError::MechanismFailed { reason: text("reason") },
            "org.varlink.service.MethodNotFound" => ApiError::MethodNotFound { method: text("method") },
            "org.varlink.service.ExpectedMore" => ApiError::ExpectedMore,
            _ => ApiError::Other {
                name: name.to_owned(),
                parameters: serde_json::to_string(parameters).unwrap_or_default(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_survives_the_wire() {
        let reason = || "because".to_owned();
        for error in [
            ApiError::PermissionDenied { reason: reason() },
            ApiError::InvalidParameter { parameter: "pid".into(), reason: reason() },
            ApiError::NoSuchTask { pid: 7 },
            ApiError::AdmissionRefused { reason: reason(), bandwidth: 0.5, admit_below: 0.8 },
            ApiError::NoSuchDomain { domain: "web".into() },
            ApiError::DomainExists { domain: "web".into() },
            ApiError::Overcommitted {
                resource: "cpu".into(),
                reason: reason(),
                asked: 0.5,
                reserved: 0.6,
                limit: 0.95,
            },
            ApiError::MechanismGone { reason: reason() },
            ApiError::MechanismFailed { reason: reason() },
            ApiError::MethodNotFound { method: "a.B".into() },
            ApiError::ExpectedMore,
            ApiError::Other { name: "a.C".into(), parameters: r#"{"d":1}"#.into() },
        ] {
            let (name, parameters) = error.to_wire();
            assert_eq!(ApiError::from_wire(&name, &parameters), error);
        }
    }
}
