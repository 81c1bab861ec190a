// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report as text.

use super::nic::Nic;
use super::{Finding, Report};
use std::fmt::Write;

pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut text, report);
    text
}

fn write_all(out: &mut String, report: &Report) -> std::fmt::Result {
    write_machine(out, report)?;
    write_privileges(out, report)?;
    write_features(out, report)?;
    writeln!(out, "\ninterfaces")?;
    let xdp = &report.features.xdp_socket;
    let mut nics = report.nics.iter();
    nics.try_for_each(|nic| write_nic(out, nic, xdp))?;
    writeln!(out, "\npaths that a job would use")?;
    for path in &report.paths {
        let links = path.path.unwrap_or("none");
        writeln!(out, "  between {}: {links}\n    {}", path.between, path.why)?;
    }
    write_advice(out, report)
}

fn write_machine(out: &mut String, report: &Report) -> std::fmt::Result {
    let machine = &report.machine;
    writeln!(out, "machine")?;
    writeln!(
        out,
        "  {} Linux {} {}",
        machine.host, machine.kernel, machine.architecture
    )?;
    let smt = match machine.smt {
        Some(true) => ", hardware threads share cores",
        _ => "",
    };
    let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
    writeln!(out, "  {} × {cpu}{smt}", machine.core_count)?;
    let governor = machine.governor.as_deref().unwrap_or("none visible");
    let place = if machine.hypervisor {
        "virtual machine"
    } else {
        "no hypervisor visible"
    };
    let clock = machine.clock_source.as_deref().unwrap_or("unknown");
    writeln!(
        out,
        "  {place}; CPU governor {governor}; clock source {clock}"
    )
}

fn write_privileges(out: &mut String, report: &Report) -> std::fmt::Result {
    let privileges = &report.privileges;
    let limits = &report.limits;
    let capability = |name: &str, has: bool| format!("{name} {}", yes(has));
    writeln!(out, "\nprivileges and limits of user {}", privileges.uid)?;
    let capabilities = [
        capability("CAP_NET_RAW", privileges.net_raw),
        capability("CAP_NET_ADMIN", privileges.net_admin),
        capability("CAP_BPF", privileges.bpf),
        capability("CAP_SYS_ADMIN", privileges.sys_admin),
        capability("CAP_SYS_PTRACE", privileges.sys_ptrace),
    ];
    writeln!(out, "  {}", capabilities.join(", "))?;
    let scope = privileges
        .ptrace_scope
        .map_or("no Yama".into(), |scope| scope.to_string());
    writeln!(out, "  ptrace_scope {scope}")?;
    let bytes = |len: Option<u64>| len.map_or("unlimited".into(), |len| format!("{len} bytes"));
    let count = |count: Option<u64>| count.map_or("unlimited".into(), |count| count.to_string());
    writeln!(
        out,
        "  descriptors {} (at most {}), locked memory {}",
        count(limits.descriptors),
        count(limits.descriptors_max),
        bytes(limits.memlock_len)
    )?;
    writeln!(
        out,
        "  socket buffers: receive at most {}, send at most {}",
        bytes(limits.receive_buffer_len_max),
        bytes(limits.send_buffer_len_max)
    )?;
    let memory = limits.unexpected_memory_len;
    writeln!(
        out,
        "  unexpected messages: at most {} in a process that is alone on this host",
        memory.map_or("?".into(), |len| format!("{len} bytes"))
    )
}

fn write_features(out: &mut String, report: &Report) -> std::fmt::Result {
    let features = &report.features;
    writeln!(out, "\nkernel features, tested")?;
    for (name, finding) in [
        ("UDP_SEGMENT", &features.udp_segment),
        ("UDP_GRO", &features.udp_gro),
        ("zero-copy TCP", &features.zero_copy_tcp),
        ("memfd", &features.memfd),
        ("membarrier", &features.membarrier),
        ("process_vm_readv", &features.pull),
        ("AF_PACKET", &features.packet_socket),
        ("AF_XDP", &features.xdp_socket),
        ("network namespaces", &features.netns),
        ("link shm", &features.shm),
    ] {
        writeln!(out, "  {name:<18} {}", outcome(finding))?;
    }
    Ok(())
}

fn write_nic(out: &mut String, nic: &Nic, xdp: &Finding) -> std::fmt::Result {
    let driver = nic.driver.as_deref().unwrap_or("unknown driver");
    let state = match (nic.up, nic.running) {
        (false, _) => "down",
        (true, false) => "no carrier",
        (true, true) => "up",
    };
    write!(
        out,
        "  {} ({}, {driver}) {state}, MTU {}",
        nic.name, nic.kind, nic.mtu
    )?;
    if let Some(speed) = nic.mbit_per_s {
        write!(out, ", {speed} Mbit/s")?;
    }
    nic.addresses
        .iter()
        .try_for_each(|address| write!(out, ", {address}"))?;
    writeln!(out)?;
    if !nic.running || nic.loopback {
        return Ok(());
    }
    let offloads: Vec<String> = nic
        .offloads
        .iter()
        .map(|(name, on)| format!("{name} {}", if *on { "on" } else { "off" }))
        .collect();
    writeln!(out, "    {}", offloads.join(", "))?;
    match (nic.rx_coalescing_us, nic.adaptive_coalescing) {
        (Some(delay), Some(true)) => writeln!(out, "    interrupts after {delay} µs, adaptive")?,
        (Some(delay), _) => writeln!(out, "    interrupts after {delay} µs")?,
        _ => writeln!(out, "    interrupt coalescing not readable")?,
    }
    writeln!(out, "    link udp: {}", outcome(&nic.udp))?;
    let by = if nic.by_broker { ", by the broker" } else { "" };
    writeln!(out, "    link packet: {}{by}", outcome(&nic.packet))?;
    writeln!(out, "    link stream: {}", outcome(&nic.stream))?;
    if !nic.ethernet {
        return Ok(());
    }
    writeln!(out, "    link xdp, only on request: {}", outcome(xdp))?;
    for (mode, effect) in [("generic", nic.xdp_generic), ("native", nic.xdp_native)] {
        writeln!(out, "      {mode} mode: {effect}")?;
    }
    Ok(())
}

fn write_advice(out: &mut String, report: &Report) -> std::fmt::Result {
    if report.advice.is_empty() {
        return writeln!(out, "\nnothing to change");
    }
    writeln!(out, "\nproposed changes")?;
    for advice in &report.advice {
        writeln!(out, "  {}: {}", advice.gain, advice.action)?;
    }
    Ok(())
}

/// Describes a finding, with the reason if the feature does not work.
pub(crate) fn outcome(finding: &Finding) -> String {
    match &finding.why_not {
        None => yes(finding.works).to_owned(),
        Some(why_not) => format!("no: {why_not}"),
    }
}

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
