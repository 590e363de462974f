// SPDX-License-Identifier: GPL-2.0-only
//! The language of the control socket, docs/protocol.md: one line of JSON each way, with the version.
//!
//! Whoever is older or newer is understood as far as that goes. What is unknown in an answer is skipped, and so is
//! what is unknown beside a request. What is unknown *in* an order is refused: half of an order is not what was meant.

use crate::control::{Answer, Request};
use anyhow::Result;
use drover_core::printable::json;
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The version spoken here. Additions do not count: it grows when something is taken away or means
/// something else.
pub const VERSION: u32 = 1;

/// A request or an answer as it goes over the socket.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Line")]
pub struct Line<T> {
    /// The version of the protocol that the sender speaks. It may be left out of a request.
    #[serde(default)]
    pub version: u32,
    /// What is said.
    #[serde(flatten)]
    pub message: T,
}

/// What goes over the control socket of the Drover daemon: a line with a request, a line with its answer.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "for its schema only")]
struct Protocol {
    /// What may be asked.
    request: Line<Request>,
    /// What is answered.
    answer: Line<Answer>,
}

/// The protocol as a JSON schema; docs/protocol.schema.json holds it.
pub fn schema() -> Schema {
    schema_for!(Protocol)
}

/// A message as a line, its end included.
///
/// # Errors
/// Never, for what this program says.
pub fn line(message: &impl Serialize) -> Result<String> {
    let mut line = json(&serde_json::to_string(&Line { version: VERSION, message })?);
    line.push('\n');
    Ok(line)
}

/// Reads a request.
///
/// # Errors
/// In one line, to be answered, when it is none or not known here.
pub fn request(line: &str) -> Result<Request, String> {
    let read: Value =
        serde_json::from_str(line).map_err(|err| format!("this is no JSON: {err}"))?;
    let Some(word) = read.get("request").and_then(Value::as_str).map(str::to_owned) else {
        return Err("there is no \"request\" in it, such as {\"request\":\"list_vms\"}".to_owned());
    };
    serde_json::from_value(read).map_err(|err| {
        let err = err.to_string();
        match err.starts_with("unknown variant") {
            true => format!(
                "{err}: this drover does not know that request (version {VERSION} of the protocol); is it older?"
            ),
            false => format!("request {word:?}: {err}"),
        }
    })
}

/// The one answer that is long, MB of a thousand VMs: to read any answer by its tag takes twice as long, as it is read
/// whole to find the tag.
#[derive(Deserialize)]
struct VmsLine<'a> {
    answer: &'a str,
    #[serde(borrow)]
    vms: &'a RawValue,
}

/// Reads an answer.
///
/// # Errors
/// When it is none that this program knows.
pub fn answer(line: &str) -> Result<Answer> {
    let read = match serde_json::from_str::<VmsLine>(line) {
        Ok(VmsLine { answer: "vms", vms }) => {
            serde_json::from_str(vms.get()).map(|vms| Answer::Vms { vms })
        }
        _ => serde_json::from_str(line),
    };
    read.map_err(|err| {
        let version = serde_json::from_str::<Line<Value>>(line).map_or(0, |line| line.version);
        match version > VERSION {
            true => anyhow::anyhow!(
                "the daemon speaks version {version} of the protocol, this command {VERSION}: use its own `drover`"
            ),
            false => anyhow::anyhow!("the daemon's answer is not understood: {err}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_published_schema_is_what_is_spoken() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.schema.json");
        let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("DROVER_WRITE_DOCS").is_some() {
            fs::write(&file, &schema).unwrap();
        }
        let published = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            published == schema,
            "write it anew: DROVER_WRITE_DOCS=1 cargo test -p drover-host schema"
        );
    }

    #[test]
    fn every_line_of_the_document_is_understood() {
        let document = include_str!("../../../docs/protocol.md");
        let lines: Vec<&str> =
            document.lines().map(str::trim).filter(|line| line.starts_with('{')).collect();
        assert!(lines.len() >= 10, "{lines:?}");
        for line in lines {
            let is_request = line.contains("\"request\"");
            let read = if is_request {
                request(line).map(|_| ())
            } else {
                answer(line).map(|_| ()).map_err(|err| err.to_string())
            };
            assert_eq!(read, Ok(()), "{line}");
        }
    }

    #[test]
    fn lines_carry_the_version() {
        let line = line(&Answer::Done).unwrap();
        assert_eq!(line, "{\"version\":1,\"answer\":\"done\"}\n");
        assert_eq!(answer(&line).unwrap(), Answer::Done);
    }

    #[test]
    fn older_and_newer_clients_are_understood() {
        assert_eq!(request(r#"{"request":"list_vms"}"#), Ok(Request::ListVms { brief: false }));
        let newer = r#"{"version":9,"request":"forget_vm","name":"web","because":["moved"]}"#;
        assert_eq!(request(newer), Ok(Request::ForgetVm { name: "web".to_owned() }));
        assert_eq!(
            request(r#"{"version":9,"request":"list_pools","sort":1}"#),
            Ok(Request::ListPools)
        );
        let done = answer(r#"{"version":9,"answer":"done","after_ms":3}"#).unwrap();
        assert_eq!(done, Answer::Done);
    }

    #[test]
    fn what_is_not_known_is_said_in_one_line() {
        for (line, said) in [
            ("", "no JSON"),
            ("null", "no \"request\" in it"),
            (r#"{"request":7}"#, "no \"request\" in it"),
            (r#"{"request":"reboot"}"#, "does not know that request (version 1"),
            (r#"{"request":"set_vm"}"#, "request \"set_vm\": missing field `name`"),
            (
                r#"{"request":"set_vm","name":"web","set":{"colour":"red"}}"#,
                "unknown field `colour`",
            ),
            (r#"{"request":"set_vm","name":"web","set":{"shares":"0"}}"#, "1 to 1000000"),
        ] {
            let reason = request(line).unwrap_err();
            assert!(reason.contains(said) && reason.lines().count() == 1, "{line}: {reason}");
        }
        let newer = answer(r#"{"version":2,"answer":"dreams"}"#).unwrap_err().to_string();
        assert!(newer.contains("speaks version 2"), "{newer}");
    }
}
