//! Which errno says what the API says in a sentence.

use libsteward::ApiError;
use rustix::io::Errno;

/// Why something was not done: the number that the program sees, and the sentence for `last_error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the system call returns.
    pub errno: Errno,
    /// What was wrong, and what to do.
    pub sentence: String,
}

impl Failure {
    /// A failure with its sentence.
    pub fn new(errno: Errno, sentence: impl Into<String>) -> Self {
        Failure { errno, sentence: sentence.into() }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Failure { errno: errno_of(&error), sentence: error.to_string() }
    }
}

fn errno_of(error: &ApiError) -> Errno {
    match error {
        ApiError::PermissionDenied { .. } => Errno::ACCESS,
        ApiError::InvalidParameter { .. } => Errno::INVAL,
        ApiError::NoSuchTask { .. } => Errno::SRCH,
        ApiError::AdmissionRefused { .. } => Errno::NOSPC,
        ApiError::MechanismGone { .. } => Errno::NODEV,
        // Not ENOSYS: the kernel would never ask again.
        ApiError::MethodNotFound { .. } => Errno::OPNOTSUPP,
        ApiError::NoSuchDomain { .. } => Errno::NOENT,
        ApiError::DomainExists { .. } => Errno::EXIST,
        ApiError::Overcommitted { .. } => Errno::NOSPC,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_the_number_that_programs_expect() {
        let reason = || "because".to_owned();
        let cases = [
            (ApiError::PermissionDenied { reason: reason() }, Errno::ACCESS),
            (ApiError::InvalidParameter { parameter: "cpu".into(), reason: reason() }, Errno::INVAL),
            (ApiError::NoSuchTask { pid: 7 }, Errno::SRCH),
            (ApiError::AdmissionRefused { reason: reason(), bandwidth: 0.5, admit_below: 0.8 }, Errno::NOSPC),
            (
                ApiError::Overcommitted {
                    resource: "cpu".into(),
                    reason: reason(),
                    asked: 0.5,
                    reserved: 0.6,
                    limit: 0.95,
                },
                Errno::NOSPC,
            ),
            (ApiError::NoSuchDomain { domain: "a".into() }, Errno::NOENT),
            (ApiError::DomainExists { domain: "a".into() }, Errno::EXIST),
            (ApiError::MechanismFailed { reason: reason() }, Errno::IO),
            (ApiError::MethodNotFound { method: "a.B".into() }, Errno::OPNOTSUPP),
        ];
        for (error, errno) in cases {
            let failure = Failure::from(error.clone());
            assert_eq!((failure.errno, failure.sentence), (errno, error.to_string()));
        }
    }
}
