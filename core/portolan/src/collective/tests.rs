// SPDX-License-Identifier: MIT OR Apache-2.0

use super::record::NOTICE_LEN_MAX;
use super::*;

fn head(kind: CollectiveKind, len: usize) -> Head {
    Head::new(kind, 0, len)
}

#[test]
fn records_round_trip() {
    let mut sum = head(CollectiveKind::Allreduce, 24);
    (sum.op, sum.datatype, sum.seq, sum.members) = (1, 6, 7, u64::MAX);
    assert_eq!(Head::parse(&sum.to_bytes()), Some(sum));
    assert_eq!(sum.call().to_string(), "allreduce (Sum of f64) of 24 bytes");
    let from = Head::new(CollectiveKind::Broadcast, 3, 9);
    assert_eq!(
        from.call().to_string(),
        "broadcast of 9 bytes from member 3"
    );
    for notice in [
        GroupNotice::Waiting {
            group: 5,
            head: sum,
        },
        GroupNotice::Mismatch {
            group: 0,
            first: (1, sum),
            second: (2, from),
        },
        GroupNotice::Gone {
            group: 9,
            rank: 4,
            why: "it closed the session".into(),
        },
    ] {
        assert_eq!(GroupNotice::parse(&notice.to_bytes()), Some(notice));
    }
    let long = GroupNotice::Gone {
        group: 1,
        rank: 1,
        why: "x".repeat(1000),
    };
    assert_eq!(long.to_bytes().len(), NOTICE_LEN_MAX);
}

#[test]
fn invalid_records_are_refused() {
    let good = head(CollectiveKind::Barrier, 0).to_bytes();
    for (at, byte) in [(0, 9), (1, 0), (1, 16), (1, 144), (2, 9), (3, 13)] {
        let mut bad = good;
        bad[at] = byte;
        assert_eq!(Head::parse(&bad), None, "byte {at}: {byte}");
    }
    assert_eq!(Head::parse(&good[..HEAD_LEN - 1]), None);
    let notice = GroupNotice::Waiting {
        group: 1,
        head: head(CollectiveKind::Barrier, 0),
    }
    .to_bytes();
    assert_eq!(GroupNotice::parse(&notice[..notice.len() - 1]), None);
    for (at, byte) in [(0, 9), (1, 0), (1, 4), (9, 0)] {
        let mut bad = notice.clone();
        bad[at] = byte;
        assert_eq!(GroupNotice::parse(&bad), None, "byte {at}: {byte}");
    }
    let endless = [&notice[..], &[b'x'; 300]].concat();
    assert_eq!(GroupNotice::parse(&endless), None);
}

#[test]
fn at_most_two_operations_are_pending() {
    let mut state = State::default();
    let barrier = head(CollectiveKind::Barrier, 0);
    let first = state.begin(&barrier).unwrap();
    let second = state.begin(&head(CollectiveKind::Broadcast, 8)).unwrap();
    assert_eq!((first.seq, second.seq), (1, 2));
    assert_ne!(first.slot(), second.slot());
    assert_eq!(state.begin(&barrier), Err(TooManyPending));
    state.end(&first);
    assert_eq!(state.begin(&barrier).unwrap().seq, 3);
    // It has ended before, and the operation that now uses its port continues.
    state.end(&first);
    assert_eq!(state.begin(&barrier), Err(TooManyPending));
}

#[test]
fn mismatched_operations_are_detected_in_either_order() {
    let barrier = head(CollectiveKind::Barrier, 0);
    let theirs = Head {
        seq: 1,
        ..head(CollectiveKind::Allreduce, 8)
    };
    let mut late = State::default();
    assert_eq!(late.on_waiting(0, 3, &theirs), Ok(()));
    let own = late.begin(&barrier).unwrap();
    let pair = Pair((3, theirs), (0, own));
    assert_eq!(late.check_waiting(0, &own), Err(pair));

    let mut early = State::default();
    let own = early.begin(&barrier).unwrap();
    assert_eq!(early.check_waiting(0, &own), Ok(()));
    assert_eq!(early.on_waiting(0, 3, &theirs), Err(pair));
    assert_eq!(early.on_waiting(0, 3, &own), Ok(()));
    assert_eq!(early.check_data(0, 3, &theirs, &own), Err(pair));
    assert_eq!(early.check_data(0, 3, &own, &own), Ok(()));
}

#[test]
fn unrequested_data_are_a_mismatch() {
    let mut state = State::default();
    let from = |root| Head::new(CollectiveKind::Broadcast, root, 8);
    let theirs = Head { seq: 1, ..from(1) };
    // This process may still reach it.
    assert_eq!(state.on_unread(0, 1, &theirs), Ok(()));
    let own = state.begin(&from(1)).unwrap();
    assert_eq!(state.on_unread(0, 1, &theirs), Ok(()));
    let other = Head { seq: 1, ..from(2) };
    assert_eq!(
        state.on_unread(0, 2, &other),
        Err(Pair((2, other), (0, own)))
    );
    state.end(&own);
    let mut last = own;
    for _ in 0..HISTORY_LEN {
        last = state.begin(&from(0)).unwrap();
        state.end(&last);
    }
    assert_eq!(
        state.on_unread(0, 1, &theirs),
        Err(Pair((1, theirs), (0, last)))
    );
    assert_eq!(
        state.on_waiting(0, 1, &theirs),
        Ok(()),
        "it may be on its way"
    );
}

#[test]
fn different_members_are_reported_first() {
    let own = head(CollectiveKind::Barrier, 0);
    let theirs = Head {
        members: 1,
        len: 4,
        ..own
    };
    let Fault::Mismatch(mismatch) = Pair((0, own), (1, theirs)).fault(7) else {
        panic!("nobody is gone");
    };
    assert!(!mismatch.is_of_length());
    let text = mismatch.to_string();
    assert!(
        text.contains("members of group 7 have other members"),
        "{text}"
    );
}

#[test]
fn length_mismatch_is_reported_as_length_mismatch() {
    let of = |first: Head, second: Head| match Pair((0, first), (1, second)).fault(0) {
        Fault::Mismatch(mismatch) => mismatch,
        Fault::Gone { .. } => panic!("nobody is gone"),
    };
    let long = head(CollectiveKind::Broadcast, 8);
    assert!(of(long, Head { len: 4, ..long }).is_of_length());
    assert!(
        !of(
            long,
            Head {
                len: 4,
                root: 1,
                ..long
            }
        )
        .is_of_length()
    );
    assert!(
        !of(
            long,
            Head {
                len: 4,
                seq: 1,
                ..long
            }
        )
        .is_of_length()
    );
    let text = of(long, Head { len: 4, ..long }).to_string();
    assert!(
        text.contains("rank 0 broadcast of 8 bytes") && text.contains("rank 1 broadcast of 4"),
        "{text}"
    );
}

#[test]
fn part_is_complete_if_its_data_are_in_the_same_message() {
    let head = Head {
        len: 5000,
        ..head(CollectiveKind::Gather, 2)
    };
    let mut place = [0xa5; 1024];
    for data_len in [0, 5, PART_INLINE_LEN_MAX] {
        let data = vec![7; data_len];
        let bytes = head.to_bytes();
        let message = Layout::Part.write(&bytes, data_len, &data, &mut place);
        assert_eq!(Head::parse(message), Some(head));
        assert!(Head::begins(message, &bytes) && !Head::begins(&message[1..], &bytes));
        assert!(head.is_complete(message), "{data_len}");
        let (len, behind) = Layout::Part.split(0, &message[HEAD_LEN..]).unwrap();
        assert_eq!((len, behind), (data_len as u64, &data[..]));
    }
    let len = PART_INLINE_LEN_MAX + 1;
    let message = Layout::Part.write(&head.to_bytes(), len, &[], &mut place);
    assert!(!head.is_complete(message));
    // Without the length of a part, all data of the operation are expected.
    assert!(!head.is_complete(&head.to_bytes()));
}
