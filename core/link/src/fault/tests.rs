// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::Segments;
use crate::sim::{SimLink, SimNet, SimParams};
use std::io::IoSlice;

fn pair(spec: &str, params: SimParams) -> (Fault<SimLink>, SimLink) {
    let net = SimNet::new(1, params);
    let mut a = Fault::new(net.port().unwrap(), spec.parse().unwrap());
    let b = net.port().unwrap();
    a.connect(1, &b.local_addr()).unwrap();
    (a, b)
}

fn received(link: &mut SimLink) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while link.receive(16, &mut |frame| all.push(frame.head.to_vec())) > 0 {}
    all
}

/// Sends 1000 numbered frames and returns what arrived.
fn thousand(spec: &str) -> (FaultCounters, Vec<Vec<u8>>) {
    let (mut a, mut b) = pair(spec, SimParams::default());
    for number in 0..1000_u32 {
        a.transmit(1, &TxFrame::contiguous(&number.to_be_bytes()))
            .unwrap();
    }
    while !a.held.is_empty() {
        a.release_due();
    }
    (a.counters(), received(&mut b))
}

#[test]
fn no_faults_change_nothing() {
    let (counters, got) = thousand("");
    assert_eq!(
        counters,
        FaultCounters {
            frames: 1000,
            ..FaultCounters::default()
        }
    );
    assert!(got.len() == 1000 && got.is_sorted());
}

#[test]
fn drops_are_counted_and_missing() {
    let (counters, got) = thousand("drop=0.2,seed=3");
    assert_eq!(got.len() as u64, 1000 - counters.dropped);
    assert!((150..250).contains(&counters.dropped), "{counters:?}");
}

#[test]
fn duplicates_arrive_twice() {
    let (counters, mut got) = thousand("dup=0.1");
    assert_eq!(got.len() as u64, 1000 + counters.duplicated);
    assert!(counters.duplicated > 50);
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 1000);
}

#[test]
fn reordered_frames_are_overtaken_without_loss() {
    let (counters, mut got) = thousand("reorder=0.1");
    assert!(counters.reordered > 50 && !got.is_sorted());
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 1000);
}

#[test]
fn corruption_flips_one_bit() {
    let (counters, got) = thousand("corrupt=0.1");
    let wrong_bits = |(number, frame): (u32, &Vec<u8>)| {
        (u32::from_be_bytes(frame[..].try_into().unwrap()) ^ number).count_ones()
    };
    let bits: Vec<u32> = (0..1000).zip(&got).map(wrong_bits).collect();
    assert!(bits.iter().all(|&bits| bits <= 1));
    assert_eq!(u64::from(bits.iter().sum::<u32>()), counters.corrupted);
    assert!(counters.corrupted > 50);
}

#[test]
fn delayed_frame_leaves_in_time_and_forbids_sleep() {
    let (mut a, mut b) = pair("delay=1:20ms", SimParams::default());
    a.transmit(1, &TxFrame::contiguous(b"later")).unwrap();
    assert!(received(&mut b).is_empty());
    while !a.arm(&mut WakeSet::default()) {
        a.disarm();
    }
    assert_eq!(received(&mut b), [b"later"]);
}

#[test]
fn each_datagram_of_a_run_draws_its_own_faults() {
    let (mut a, mut b) = pair("drop=0.5,seed=1", SimParams::default());
    let head: Vec<u8> = (0..40).collect();
    let body = [0xa5; 40 * 10];
    let payload = [IoSlice::new(&body)];
    let segments = Some(Segments {
        header_len: 1,
        payload_len: 10,
    });
    a.transmit(
        1,
        &TxFrame {
            head: &head,
            payload: &payload,
            segments,
        },
    )
    .unwrap();
    let got = received(&mut b);
    assert!((5..35).contains(&got.len()), "{} of 40", got.len());
    assert!(got.is_sorted() && got.iter().all(|frame| frame.len() == 11));
}

#[test]
fn back_pressure_loses_nothing() {
    let params = SimParams {
        queue_frames_max: 4,
        ..SimParams::default()
    };
    let (mut a, mut b) = pair("dup=0.3,reorder=0.3,delay=0.1:1us", params);
    let mut got = Vec::new();
    for number in 0..1000_u32 {
        while a
            .transmit(1, &TxFrame::contiguous(&number.to_be_bytes()))
            .is_err()
        {
            got.extend(received(&mut b));
        }
    }
    while !a.held.is_empty() {
        a.release_due();
        got.extend(received(&mut b));
    }
    got.extend(received(&mut b));
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 1000);
}

#[test]
fn refusals_are_not_hidden_by_faults() {
    let (mut a, _b) = pair("drop=1", SimParams::default());
    assert!(matches!(
        a.transmit(9, &TxFrame::contiguous(b"x")),
        Err(TxError::NotConnected(9))
    ));
    let long = vec![0; a.caps().frame_len_max + 1];
    assert!(matches!(
        a.transmit(1, &TxFrame::contiguous(&long)),
        Err(TxError::TooLong { .. })
    ));
}
