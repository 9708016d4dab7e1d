//! Has programs be told when they should give memory back ([`crate::memory::pressure`]): on request, and when it is
//! time.

use libsteward::ApiError;
use steward_kernel::process;

use crate::daemon::Daemon;
use crate::server::peer::Caller;

impl Daemon {
    /// Has a program be told when it should give memory back. Returns what it has to open; nothing where there is no
    /// room for one more, or it cannot be made: the program does without.
    pub(crate) fn listen_to_pressure(&mut self, caller: &Caller) -> Result<Option<String>, ApiError> {
        let gone = || ApiError::NoSuchTask { pid: caller.pid };
        let id = process::stat(caller.pid, &self.options.roots).map_err(|_| gone())?.id;
        if !caller.is_alive() {
            return Err(gone());
        }
        let held = caller.process.as_ref().and_then(|process| process.try_clone().ok());
        let program = Caller { gids: caller.gids.clone(), process: held, can_wait: false, ..*caller };
        let owner_uid = self.settings.policy.owner_uid;
        let is_kept_for = |payer| payer == 0 || owner_uid == Some(payer);
        match self.memory.listeners.add(id, program, &is_kept_for) {
            Ok(fifo) => Ok(fifo.and_then(|fifo| fifo.to_str().map(str::to_owned))),
            Err(error) => {
                let directory = self.memory.listeners.directory().display();
                tracing::warn!(
                    pid = caller.pid,
                    "{directory}: cannot make a FIFO that tells of pressure: {error}"
                );
                Ok(None)
            }
        }
    }

    /// Tells programs whose domains use more than they may.
    pub(crate) fn tell_of_pressure(&mut self, now_ns: u64) {
        if self.memory.listeners.is_empty() {
            return;
        }
        let mut listeners = std::mem::take(&mut self.memory.listeners);
        listeners.survey(now_ns);
        listeners.tell(now_ns, &mut |program| {
            let domain = self.domain_of_caller(program).ok()?;
            self.availability(&domain.path, program.payer, now_ns).ok().map(|figures| figures.amounts)
        });
        self.memory.listeners = listeners;
    }
}
