// SPDX-License-Identifier: MIT OR Apache-2.0

use super::record::NEWS_LEN_MAX;
use super::*;

fn head(kind: CollectiveKind, len: usize) -> Head {
    Head::new(kind, 0, len)
}

#[test]
fn records_survive_their_way_over_the_wire() {
    let mut sum = head(CollectiveKind::Allreduce, 24);
    (sum.op, sum.datatype, sum.seq, sum.members) = (1, 6, 7, u64::MAX);
    assert_eq!(Head::parse(&sum.to_bytes()), Some(sum));
    assert_eq!(sum.call().to_string(), "allreduce (Sum of f64) of 24 bytes");
    let from = Head::new(CollectiveKind::Broadcast, 3, 9);
    assert_eq!(
        from.call().to_string(),
        "broadcast of 9 bytes from member 3"
    );
    for news in [
        News::Waiting {
            group: 5,
            head: sum,
        },
        News::Mismatch {
            group: 0,
            first: (1, sum),
            second: (2, from),
        },
        News::Gone {
            group: 9,
            rank: 4,
            why: "it closed the session".into(),
        },
    ] {
        assert_eq!(News::parse(&news.to_bytes()), Some(news));
    }
    let long = News::Gone {
        group: 1,
        rank: 1,
        why: "x".repeat(1000),
    };
    assert_eq!(long.to_bytes().len(), NEWS_LEN_MAX);
}

#[test]
fn what_is_no_record_is_refused() {
    let good = head(CollectiveKind::Barrier, 0).to_bytes();
    for (at, byte) in [(0, 9), (1, 0), (1, 6), (2, 5), (3, 7)] {
        let mut bad = good;
        bad[at] = byte;
        assert_eq!(Head::parse(&bad), None, "byte {at}: {byte}");
    }
    assert_eq!(Head::parse(&good[..HEAD_LEN - 1]), None);
    let news = News::Waiting {
        group: 1,
        head: head(CollectiveKind::Barrier, 0),
    }
    .to_bytes();
    assert_eq!(News::parse(&news[..news.len() - 1]), None);
    for (at, byte) in [(0, 9), (1, 0), (1, 4), (9, 0)] {
        let mut bad = news.clone();
        bad[at] = byte;
        assert_eq!(News::parse(&bad), None, "byte {at}: {byte}");
    }
    let endless = [&news[..], &[b'x'; 300]].concat();
    assert_eq!(News::parse(&endless), None);
}

#[test]
fn two_operations_may_be_under_way_and_no_third() {
    let mut state = State::default();
    let barrier = head(CollectiveKind::Barrier, 0);
    let first = state.begin(&barrier).unwrap();
    let second = state.begin(&head(CollectiveKind::Broadcast, 8)).unwrap();
    assert_eq!((first.seq, second.seq), (1, 2));
    assert_ne!(first.slot(), second.slot());
    assert_eq!(state.begin(&barrier), Err(Busy));
    state.end(&first);
    assert_eq!(state.begin(&barrier).unwrap().seq, 3);
    // It has ended before, and the operation that now uses its port continues.
    state.end(&first);
    assert_eq!(state.begin(&barrier), Err(Busy));
}

#[test]
fn another_operation_of_the_same_number_is_found_out_whoever_comes_first() {
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
fn data_that_nobody_asked_for_are_of_another_operation() {
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
fn other_members_are_told_before_all_else() {
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
    assert!(text.contains("group 7 has other members"), "{text}");
}

#[test]
fn only_a_difference_in_length_is_told_as_such() {
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
