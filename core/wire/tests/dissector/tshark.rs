// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs tshark with the dissector on a capture, and reads the fields that it finds.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Path of the dissector.
const DISSECTOR: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../core/wire/wireshark/portolan.lua"
);

/// Field of a packet, or an error that the dissector reports.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "not every test binary uses all of it")]
pub(crate) struct Field {
    /// Name without the prefix `portolan.`, such as `rts.len`.
    pub(crate) name: String,
    /// Value, as in display filters.
    pub(crate) show: String,
    /// Name and value, as in Wireshark's window.
    pub(crate) shown: String,
    /// First byte in the packet.
    pub(crate) pos: usize,
    /// Number of bytes.
    pub(crate) size: usize,
}

/// Packet of a capture.
#[derive(Debug, Default)]
pub(crate) struct Packet {
    /// Number in the capture, from 1.
    pub(crate) number: usize,
    /// Bytes of the packet.
    pub(crate) len: usize,
    /// Fields of the dissector, in order.
    pub(crate) fields: Vec<Field>,
}

impl Packet {
    /// Returns true if the dissector reports malformed contents.
    #[allow(dead_code, reason = "not every test binary uses it")]
    pub(crate) fn is_malformed(&self) -> bool {
        self.fields.iter().any(|field| field.name == "malformed")
    }

    /// Returns the offsets of bytes, from `start` on, that no field covers.
    #[allow(dead_code, reason = "not every test binary uses it")]
    pub(crate) fn uncovered(&self, start: usize) -> Vec<usize> {
        let mut covered = vec![false; self.len];
        for field in &self.fields {
            if field.name != "unknown" {
                covered[field.pos..field.pos + field.size].fill(true);
            }
        }
        (start..self.len).filter(|at| !covered[*at]).collect()
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "packet {} of {} bytes", self.number, self.len)?;
        for field in &self.fields {
            let Field { pos, size, .. } = field;
            writeln!(f, "  {pos}+{size} {}: {}", field.name, field.shown)?;
        }
        Ok(())
    }
}

/// Returns true if tshark with Lua is installed; prints SKIPPED if not.
pub(crate) fn can_run() -> bool {
    let version = Command::new("tshark").arg("--version").output();
    let can = version.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.contains("with Lua")
    });
    if !can {
        eprintln!("SKIPPED: this test needs tshark with Lua (apt install tshark)");
    }
    can
}

fn command(capture: &Path) -> Command {
    let mut command = Command::new("tshark");
    command.args(["-X", &format!("lua_script:{DISSECTOR}")]);
    for protocol in ["udp", "tcp"] {
        command.args(["-o", &format!("{protocol}.try_heuristic_first:TRUE")]);
    }
    command.arg("-r").arg(capture).stderr(Stdio::piped());
    command
}

/// Returns the packets of a capture, with the fields of the dissector.
pub(crate) fn packets(capture: &Path) -> Vec<Packet> {
    let mut command = command(capture);
    let mut child = command
        .args(["-T", "pdml", "-J", "portolan"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tshark starts");
    let mut packets: Vec<Packet> = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("tshark writes text");
        let line = line.trim_start();
        if line == "<packet>" {
            packets.push(Packet::default());
        }
        let Some(packet) = packets.last_mut() else {
            continue;
        };
        if !line.starts_with("<field ") {
            continue;
        }
        let number = |name| attribute(line, name).and_then(|text| text.parse().ok());
        match attribute(line, "name").unwrap_or_default() {
            "num" => packet.number = number("show").expect("a number"),
            "caplen" => packet.len = number("show").expect("a length"),
            name => {
                let Some(name) = name.strip_prefix("portolan.") else {
                    continue;
                };
                packet.fields.push(Field {
                    name: name.to_owned(),
                    show: attribute(line, "show").unwrap_or_default().to_owned(),
                    shown: attribute(line, "showname").unwrap_or_default().to_owned(),
                    pos: number("pos").expect("a position"),
                    size: number("size").expect("a size"),
                });
            }
        }
    }
    assert!(child.wait().expect("tshark ends").success());
    packets
}

/// Returns all values of a field in the packets that a display filter selects.
#[allow(dead_code, reason = "not every test binary uses it")]
pub(crate) fn values(capture: &Path, field: &str, filter: &str) -> Vec<String> {
    let text = fields_text(capture, &[field], filter);
    let values = text.split(['\n', ',']).filter(|value| !value.is_empty());
    values.map(str::to_owned).collect()
}

/// Returns these fields of each packet that a display filter selects.
#[allow(dead_code, reason = "not every test binary uses it")]
pub(crate) fn rows(capture: &Path, fields: &[&str], filter: &str) -> Vec<Vec<String>> {
    let row = |line: &str| line.split('\t').map(str::to_owned).collect();
    let text = fields_text(capture, fields, filter);
    text.lines().map(row).collect()
}

/// Returns a line for each packet that a display filter selects: these fields, with tabs between
/// them, and commas between the values of one field.
#[allow(dead_code, reason = "not every test binary uses it")]
fn fields_text(capture: &Path, fields: &[&str], filter: &str) -> String {
    let mut command = command(capture);
    command.args(["-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the lines that tshark prints for the packets that a display filter selects.
#[allow(dead_code, reason = "not every test binary uses it")]
pub(crate) fn selected(capture: &Path, filter: &str) -> Vec<String> {
    let output = command(capture).args(["-Y", filter]).output();
    let output = output.expect("tshark starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert!(!error.contains("Lua"), "{error}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}
