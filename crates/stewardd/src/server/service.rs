//! What every varlink service answers: who it is, and what it can be asked.

use libsteward::api::{self, ApiError, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Answer;
use super::access::{Access, Handler, reply};
use super::peer::Caller;
use crate::daemon::Daemon;

/// Who the service is.
#[derive(Serialize, Deserialize)]
pub(crate) struct GetInfo {}

impl Method for GetInfo {
    const NAME: &'static str = "org.varlink.service.GetInfo";
    type Reply = Value;
}

impl Handler for GetInfo {
    const ACCESS: Access = Access::Open("it says which program this is, as its package does");
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, _: &mut Daemon, _: &Caller) -> Result<Answer, ApiError> {
        reply(Ok(json!({
            "vendor": "Steward",
            "product": "stewardd",
            "version": env!("CARGO_PKG_VERSION"),
            "url": "",
            "interfaces": [api::INTERFACE, "org.varlink.service"],
        })))
    }
}

/// What an interface has.
#[derive(Serialize, Deserialize)]
pub(crate) struct GetInterfaceDescription {
    #[serde(default)]
    interface: Value,
}

impl Method for GetInterfaceDescription {
    const NAME: &'static str = "org.varlink.service.GetInterfaceDescription";
    type Reply = Value;
}

impl Handler for GetInterfaceDescription {
    const ACCESS: Access = Access::Open("it is the same on every machine");
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, _: &mut Daemon, _: &Caller) -> Result<Answer, ApiError> {
        let interface = self.interface.as_str().unwrap_or_default();
        let description = match interface {
            api::INTERFACE => libsteward::INTERFACE_DESCRIPTION,
            "org.varlink.service" => libsteward::SERVICE_DESCRIPTION,
            _ => {
                let parameters = json!({ "interface": interface }).to_string();
                let name = "org.varlink.service.InterfaceNotFound".into();
                return Err(ApiError::Other { name, parameters });
            }
        };
        reply(Ok(json!({ "description": description })))
    }
}
