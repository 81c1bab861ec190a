// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan info`: the version of this build, and its capabilities on this machine.

use crate::doctor::{self, Finding};
use crate::output::outln;
use anyhow::Result;
use portolan::binding::launch::wire;
use portolan::binding::settings::{self, Setting};
use serde::Serialize;
use std::process::ExitCode;

/// Show the version of this build, and the links that it can use here.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Info {
    schema: u32,
    version: &'static str,
    target: String,
    build: &'static str,
    launch_version: u32,
    links: Vec<LinkInfo>,
    model: String,
    limits: Vec<Entry>,
    settings: Vec<SettingInfo>,
}

#[derive(Serialize)]
struct LinkInfo {
    name: &'static str,
    available: Finding,
}

/// A setting, and its value in this environment.
#[derive(Serialize)]
struct SettingInfo {
    variable: &'static str,
    option: Option<&'static str>,
    value: Option<String>,
    default: &'static str,
    meaning: &'static str,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    value: String,
}

/// Version of the JSON form. Since version 2, `settings` replaces `environment`.
const SCHEMA: u32 = 2;

/// Prints the information.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let info = collect();
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&info)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    outln!(
        "portolan {} for {}, {} build",
        info.version,
        info.target,
        info.build
    )?;
    outln!("launch protocol {}", info.launch_version)?;
    outln!("\nlinks")?;
    for link in &info.links {
        outln!("  {:<8} {}", link.name, doctor::outcome(&link.available))?;
    }
    outln!("\nmodel of paths: {}", info.model)?;
    print_entries("limits", &info.limits)?;
    print_settings(&info.settings)?;
    Ok(ExitCode::SUCCESS)
}

fn print_entries(title: &str, entries: &[Entry]) -> Result<()> {
    outln!("\n{title}")?;
    for entry in entries {
        outln!("  {:<24} {}", entry.name, entry.value)?;
    }
    Ok(())
}

fn print_settings(settings: &[SettingInfo]) -> Result<()> {
    outln!("\nsettings")?;
    for setting in settings {
        let value = match &setting.value {
            Some(value) => format!("{value:?}"),
            None => format!("not set (default: {})", setting.default),
        };
        outln!("  {:<24} {value}", setting.variable)?;
        let option = setting
            .option
            .map(|name| format!("; --option {name}=VALUE"));
        outln!(
            "  {:<24} {}{}",
            "",
            setting.meaning,
            option.unwrap_or_default()
        )?;
    }
    Ok(())
}

fn collect() -> Info {
    let links = doctor::examine().links();
    Info {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        build: if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        },
        launch_version: wire::VERSION,
        links: links
            .into_iter()
            .map(|(name, available)| LinkInfo { name, available })
            .collect(),
        model: model(),
        limits: limits(),
        settings: settings(),
    }
}

/// Describes how a job started here would use the stored model.
fn model() -> String {
    let setting = settings::MODEL.from_env();
    portolan::binding::model::load(setting.as_deref())
        .1
        .to_string()
}

fn limits() -> Vec<Entry> {
    let entry = |name, value: String| Entry { name, value };
    vec![
        entry(
            "ethertype",
            format!("{:#06x}", portolan_link::packet::ETHER_TYPE),
        ),
        entry(
            "shm ring",
            format!(
                "{} bytes per direction",
                portolan_link::shm::RING_LEN_DEFAULT
            ),
        ),
        entry("unexpected memory", unexpected_memory()),
        entry("launch message", format!("{} bytes", wire::LINE_LEN_MAX)),
        entry("lab hosts", crate::lab::HOSTS_MAX.to_string()),
    ]
}

/// Describes the memory limit for unexpected messages of a process started here.
fn unexpected_memory() -> String {
    match portolan::binding::unexpected_memory(None) {
        Err(error) => error.to_string(),
        Ok(memory) => format!(
            "{} bytes per process, with {} processes of a job on this host; memory {} bytes",
            memory.len, memory.local_size, memory.host_len
        ),
    }
}

fn settings() -> Vec<SettingInfo> {
    let info = |setting: &Setting| SettingInfo {
        variable: setting.variable,
        option: setting.option,
        value: setting.from_env(),
        default: setting.default,
        meaning: setting.meaning,
    };
    settings::ALL.iter().map(info).collect()
}
