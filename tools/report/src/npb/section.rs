// SPDX-License-Identifier: MIT OR Apache-2.0
//! Section of the page about the programs of `examples/npb`.

use super::answers::{answers, beside};
use super::{Npb, charts, tables, with_wire};
use crate::page::{bound, chart, then};
use maud::{Markup, html};
use portolan_bench::SiteKind;

/// Returns the answers, charts and tables of `npb`.
pub(crate) fn section(npb: &Npb) -> Markup {
    let answers = answers(npb);
    let tables = tables::tables(npb);
    html! {
        section {
            h2 { "Which network do these programs need?" }
            @if let Some((answer, rest)) = answers.split_first() {
                p.answer { (bound(answer)) }
                @for answer in rest { p { (bound(answer)) } }
            }
            (sizes(npb))
            @if npb.most().is_none() {
                p { "No program of the benchmarks could be measured, for the reasons below." }
            }
            p.facts { (bound(&about(npb))) }
            @for note in &npb.notes { p.facts { "Note: " (note) } }
            @for figure in charts::figures(npb) { (chart(&figure)) }
            @if !tables.is_empty() {
                h2 { "The programs, then and now" }
                p { "The paper ran class B of the benchmarks’ own programs, on 16 hosts, without FT and BT. Today's are programs of our own after the same problem statements, which verify their results." }
                @for table in &tables { (then(table)) }
            }
        }
    }
}

/// Returns the comparison of Portolan with the MPI's own transport, by program.
fn sizes(npb: &Npb) -> Markup {
    let wires = npb.wires().into_iter();
    let between = wires.map(|wire| {
        let rows = beside(&npb.over(wire), false);
        (with_wire("Between hosts", wire), rows)
    });
    let within = ("Within a host".to_owned(), beside(&npb.over(None), true));
    let places: Vec<_> = between.chain([within]).collect();
    html! {
        @if places.iter().any(|(_, rows)| !rows.is_empty()) {
            div.scroll {
                table.sizes {
                    thead { tr {
                        th { "program" } th { "Portolan" } th { "the MPI’s own" } th { "times faster" } th { "by which path" }
                    } }
                    @for (place, rows) in &places {
                        @if !rows.is_empty() {
                            tbody {
                                tr { th.era colspan="5" { (place) } }
                                @for row in rows {
                                    tr {
                                        td { (row.program) } td { (bound(&row.ours)) } td { (bound(&row.own)) } td { (row.verdict) }
                                        td { (row.over.trim_start_matches("Portolan, ")) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            p.facts { "Times of the programs: Portolan’s fastest path beside the MPI’s own TCP or memory. Below 1, the MPI’s own is faster. “Alike” means not distinguishable: the interquartile ranges of the rounds overlap." }
        }
    }
}

/// Describes the measured programs and hosts.
fn about(npb: &Npb) -> String {
    let place = match npb.site {
        SiteKind::Lab => {
            "Networks are between hosts that are network namespaces of one machine, a process on each"
        }
        SiteKind::Loopback => "Networks are this host's loopback interface",
        SiteKind::Hosts => "Networks are between hosts",
    };
    let mpi = if npb.mpi.is_empty() {
        "no MPI"
    } else {
        &npb.mpi
    };
    let rounds = match npb.rounds {
        1 => "One round".to_owned(),
        rounds => format!("Medians of {rounds} rounds in alternation"),
    };
    format!(
        "IS sorts whole numbers, MG solves on a hierarchy of grids, CG solves a sparse system, SP, LU and BT \
         compute a flow in three ways, EP draws random numbers and hardly communicates, FT transforms \
         between all processes. Class {}, {mpi}, counted by portolan profile. {place}. \
         {rounds}.",
        npb.class
    )
}
