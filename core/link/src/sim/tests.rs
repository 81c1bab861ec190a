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
