//! Lets a program end that was asked to: it needs the CPU for that, and its place is behind everybody.
//!
//! Behind two busy loops it would get nothing until the scheduler rescues it, twelve seconds later. So its processes are
//! moved out of the domain that comes last into one of their own beside all others, or, where it has a domain of its own
//! in somebody's, that one gets an ordinary place. When it did not end after all, everything is put back.

use libsteward::api::{self, ApiError, DomainSettings};
use libsteward::{Client, Error};

/// How often processes are looked for that were forked while others were moved.
const MOVES_MAX: usize = 10;

/// A program that has been let out of its place.
#[derive(Debug)]
pub(super) enum LetOut {
    /// Its processes are in this domain now.
    Moved(String),
    /// Its own domain has an ordinary place, and had these settings.
    Raised(DomainSettings),
}

/// Lets the program in `domain` out. `shared` is the domain that it is in with others of its kind, and that comes last;
/// without one, its own has what `settings` say.
///
/// # Errors
/// What the daemon says: the program then ends as soon as it gets the CPU where it is.
pub(super) fn let_out(
    client: &mut Client,
    domain: &str,
    shared: Option<&str>,
    settings: DomainSettings,
) -> Result<LetOut, Error> {
    let Some(name) = shared.and_then(|shared| domain.strip_prefix(shared)?.strip_prefix('/')) else {
        let reset = vec!["priority".to_owned(), "weight".to_owned()];
        change(client, domain, DomainSettings { reset, ..DomainSettings::default() })?;
        return Ok(LetOut::Raised(settings));
    };
    client.call(&api::CreateDomain { domain: name.to_owned(), ..api::CreateDomain::default() })?;
    move_all(client, domain, name)?;
    Ok(LetOut::Moved(name.to_owned()))
}

/// Puts a program that did not end back into `domain`, which is there again.
///
/// # Errors
/// What the daemon says.
pub(super) fn put_back(client: &mut Client, domain: &str, let_out: LetOut) -> Result<(), Error> {
    match let_out {
        LetOut::Raised(settings) => change(client, domain, settings),
        LetOut::Moved(from) => move_all(client, &from, domain),
    }
}

fn change(client: &mut Client, domain: &str, settings: DomainSettings) -> Result<(), Error> {
    let request = api::SetDomain { domain: domain.to_owned(), settings, ..api::SetDomain::default() };
    client.call(&request).map(drop)
}

/// Moves all processes of a domain, until there are none.
fn move_all(client: &mut Client, from: &str, to: &str) -> Result<(), Error> {
    for _ in 0..MOVES_MAX {
        let request = api::ShowDomain { domain: Some(from.to_owned()), pid: None };
        let processes = match client.call(&request) {
            Ok(shown) => shown.processes,
            // It goes with its last process.
            Err(Error::Api(ApiError::NoSuchDomain { .. })) => return Ok(()),
            Err(error) => return Err(error),
        };
        if processes.is_empty() {
            return Ok(());
        }
        for pid in processes {
            match client.call(&api::MoveProcess { pid: Some(pid), domain: to.to_owned() }) {
                Ok(_) | Err(Error::Api(ApiError::NoSuchTask { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
