// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

fn ports(seed: u64, params: SimParams) -> (SimNet, SimLink, SimLink) {
    let net = SimNet::new(seed, params);
    let (mut a, b) = (net.port().unwrap(), net.port().unwrap());
    a.connect(1, &b.local_addr()).unwrap();
    (net, a, b)
}

fn received(link: &mut SimLink) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while link.receive(16, &mut |frame| all.push(frame.head.to_vec())) > 0 {}
    all
}

#[test]
fn delayed_frame_arrives_when_the_clock_has_advanced() {
    let ms = Duration::from_millis;
    let params = SimParams {
        delay: (ms(5), ms(5)),
        ..SimParams::default()
    };
    let (net, mut a, mut b) = ports(1, params);
    a.transmit(1, &TxFrame::contiguous(b"later")).unwrap();
    assert_eq!(net.next_arrival(), Some(ms(5)));
    net.advance(ms(4));
    assert!(received(&mut b).is_empty());
    net.advance(ms(1));
    assert_eq!(received(&mut b), [b"later"]);
    assert_eq!((net.now(), net.next_arrival()), (ms(5), None));
}

#[test]
fn seed_decides_loss_and_order() {
    let ms = Duration::from_millis;
    let run = |seed| {
        let params = SimParams {
            delay: (ms(0), ms(9)),
            loss: 0.3,
            ..SimParams::default()
        };
        let (net, mut a, mut b) = ports(seed, params);
        assert!(!a.caps().lossless);
        for index in 0..100_u8 {
            a.transmit(1, &TxFrame::contiguous(&[index])).unwrap();
        }
        net.advance(ms(9));
        received(&mut b)
    };
    let first = run(7);
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
    assert!(
        (50..90).contains(&first.len()),
        "{} of 100 arrived",
        first.len()
    );
    assert!(!first.is_sorted());
}

#[test]
fn full_queue_is_back_pressure_until_drained() {
    let params = SimParams {
        queue_frames_max: 2,
        ..SimParams::default()
    };
    let (_net, mut a, mut b) = ports(1, params);
    a.transmit(1, &TxFrame::contiguous(b"1")).unwrap();
    a.transmit(1, &TxFrame::contiguous(b"2")).unwrap();
    assert!(matches!(
        a.transmit(1, &TxFrame::contiguous(b"3")),
        Err(TxError::Full)
    ));
    assert_eq!(received(&mut b), [b"1", b"2"]);
    a.transmit(1, &TxFrame::contiguous(b"3")).unwrap();
    assert_eq!(received(&mut b), [b"3"]);
}

#[test]
fn frames_to_a_closed_port_are_lost() {
    let params = SimParams {
        queue_frames_max: 1,
        ..SimParams::default()
    };
    let (_net, mut a, b) = ports(1, params);
    drop(b);
    for _ in 0..3 {
        a.transmit(1, &TxFrame::contiguous(b"to nobody")).unwrap();
    }
}

#[test]
fn duplicated_frames_arrive_twice() {
    let params = SimParams {
        duplicate: 1.0,
        ..SimParams::default()
    };
    let (net, mut a, mut b) = ports(1, params);
    assert!(!a.caps().lossless);
    a.transmit(1, &TxFrame::contiguous(b"echo")).unwrap();
    assert_eq!(received(&mut b), [b"echo", b"echo"]);
    assert_eq!((net.stats().sent, net.stats().arrived), (1, 2));
}

/// Cables of 1 GB/s, so that a byte takes 1 ns, and a switch that buffers two frames of 1000 bytes.
fn slow() -> SimParams {
    SimParams {
        rate_bytes_per_sec: NonZeroU64::new(1_000_000_000),
        frame_overhead_len: 0,
        port_buffer_len: 2000,
        send_buffer_len: 3000,
        ..SimParams::default()
    }
}

#[test]
fn frames_take_their_time_on_both_cables() {
    let (net, mut a, mut b) = ports(1, slow());
    for _ in 0..2 {
        a.transmit(1, &TxFrame::contiguous(&[7; 1000])).unwrap();
    }
    net.advance(Duration::from_nanos(1999));
    assert_eq!(received(&mut b).len(), 0);
    net.advance(Duration::from_nanos(1));
    assert_eq!(received(&mut b).len(), 1);
    net.advance(Duration::from_nanos(1000));
    assert_eq!(received(&mut b).len(), 1);
}

#[test]
fn frames_overlap_in_further_stages() {
    let params = SimParams {
        stage_count: 2,
        ..slow()
    };
    // Four stages of 1 ns for each byte: whole, and in halves.
    for (len, whole_ns) in [(1000, 4000), (500, 2500)] {
        let (net, mut a, mut b) = ports(1, params.clone());
        for _ in 0..1000 / len {
            a.transmit(1, &TxFrame::contiguous(&vec![7; len])).unwrap();
        }
        net.advance(Duration::from_nanos(whole_ns - 1));
        assert_eq!(received(&mut b).len(), 1000 / len - 1);
        net.advance(Duration::from_nanos(1));
        assert_eq!(received(&mut b).len(), 1);
    }
}

#[test]
fn incast_overflows_the_buffer_of_the_receivers_port() {
    let net = SimNet::new(1, slow());
    let mut receiver = net.port().unwrap();
    let mut senders: Vec<_> = (0..4).map(|_| net.port().unwrap()).collect();
    for sender in &mut senders {
        sender.connect(0, &receiver.local_addr()).unwrap();
        sender
            .transmit(0, &TxFrame::contiguous(&[7; 1000]))
            .unwrap();
    }
    net.advance(Duration::from_micros(10));
    assert_eq!(received(&mut receiver).len(), 2);
    assert_eq!(net.stats().overflowed, 2);
}

#[test]
fn senders_own_cable_exerts_back_pressure() {
    let (net, mut a, _b) = ports(1, slow());
    for _ in 0..3 {
        a.transmit(1, &TxFrame::contiguous(&[7; 1000])).unwrap();
    }
    let refused = a.transmit(1, &TxFrame::contiguous(&[7; 1000]));
    assert!(matches!(refused, Err(TxError::Full)));
    net.advance(Duration::from_nanos(1));
    a.transmit(1, &TxFrame::contiguous(&[7; 1000])).unwrap();
}

#[test]
fn frames_to_an_ended_process_return_as_notice() {
    let (net, mut a, b) = ports(1, SimParams::default());
    let port = b.index();
    net.refuse(port);
    drop(b);
    assert!(!a.has_arrived());
    a.transmit(1, &TxFrame::contiguous(b"to nobody")).unwrap();
    assert!(a.has_arrived());
    assert!(matches!(a.poll_notice(), Some(Notice::Refused(1))));
    assert!(a.poll_notice().is_none());
}

#[test]
fn cut_cable_loses_frames_of_both_directions() {
    let (net, mut a, mut b) = ports(1, SimParams::default());
    b.connect(0, &a.local_addr()).unwrap();
    net.set_cut(b.index(), true);
    a.transmit(1, &TxFrame::contiguous(b"there")).unwrap();
    b.transmit(0, &TxFrame::contiguous(b"back")).unwrap();
    net.set_cut(b.index(), false);
    assert!(received(&mut a).is_empty() && received(&mut b).is_empty());
    assert_eq!(net.stats().lost, 2);
    let mut woken = Vec::new();
    a.transmit(1, &TxFrame::contiguous(b"there")).unwrap();
    net.take_woken(&mut woken);
    assert_eq!(woken, [b.index()]);
}
