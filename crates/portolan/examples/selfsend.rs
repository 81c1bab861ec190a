use portolan::*;
use std::time::Instant;
fn main() -> Result<(), Error> {
    let mut node = Node::join()?;
    node.open(7, PortConfig::default())?;
    let count = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let c2 = count.clone();
    node.open_active(8, PortConfig::in_place(), move |_c, m| {
        c2.fetch_add(m.bytes().len() as u32, std::sync::atomic::Ordering::Relaxed);
    })?;
    let mut buf = [0u8; 64];
    let mode = std::env::args().nth(2).unwrap_or_default();
    for _ in 0..3 {
        let n: u32 = std::env::args()
            .nth(1)
            .and_then(|a| a.parse().ok())
            .unwrap_or(2_000_000);
        let t = Instant::now();
        if mode != "b" {
            for _ in 0..n {
                node.send(Target::new(0, 7), &buf)?;
                node.recv_from(0, 7, &mut buf)?;
            }
        }
        println!(
            "send+recv {:.1} ns",
            t.elapsed().as_nanos() as f64 / n as f64
        );
        let t = Instant::now();
        for _ in 0..(if mode == "a" { 0 } else { n / 64 }) {
            for _ in 0..64 {
                node.isend_copy(Target::new(0, 8), &buf[..8])?;
            }
            node.progress();
            node.progress();
        }
        println!(
            "isend_copy+handler {:.1} ns",
            t.elapsed().as_nanos() as f64 / n as f64
        );
    }
    println!("{}", count.load(std::sync::atomic::Ordering::Relaxed));
    Ok(())
}
