// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readable figures, with suitable units and two significant digits.

const KILO: f64 = 1e3;
const KIBI: f64 = 1024.0;

/// Formats microseconds as `320 ns`, `2.9 µs` or `1.4 ms`.
pub(crate) fn time(us: f64) -> String {
    match us.abs() {
        small if small < 0.9995 => format!("{} ns", digits(us * KILO)),
        small if small < 999.5 => format!("{} µs", digits(us)),
        small if small < 999_500.0 => format!("{} ms", digits(us / KILO)),
        _ => format!("{} s", digits(us / (KILO * KILO))),
    }
}

/// Formats 10^6 bytes per second as `120 MB/s` or `2.9 GB/s`.
pub(crate) fn rate(mbytes_per_s: f64) -> String {
    match mbytes_per_s.abs() {
        small if small < 0.9995 => format!("{} KB/s", digits(mbytes_per_s * KILO)),
        small if small < 999.5 => format!("{} MB/s", digits(mbytes_per_s)),
        _ => format!("{} GB/s", digits(mbytes_per_s / KILO)),
    }
}

/// Formats messages per second as `20 million` or `56 thousand`.
pub(crate) fn count(each_s: f64) -> String {
    match each_s {
        many if many >= 999_500.0 => format!("{} million", digits(many / 1e6)),
        some if some >= 999.5 => format!("{} thousand", digits(some / KILO)),
        few => digits(few),
    }
}

/// Formats bytes as `0 B`, `64 B`, `4 KB` or `1 MB`, in powers of 1024 as message sizes are given.
pub(crate) fn bytes(size: f64) -> String {
    match size {
        _ if size >= KIBI * KIBI => format!("{} MB", digits(size / (KIBI * KIBI))),
        _ if size >= KIBI => format!("{} KB", digits(size / KIBI)),
        _ => format!("{} B", digits(size)),
    }
}

/// Formats a ratio as `1.8`.
pub(crate) fn ratio(value: f64) -> String {
    digits(value)
}

/// Formats two significant digits. From 100 on, formats whole numbers with thousands separators.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    if size >= 99.5 {
        return thousands(value.round());
    }
    let decimals = match size {
        _ if size >= 9.95 => 0,
        _ if size >= 0.995 => 1,
        _ if size >= 0.0995 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}").replace('-', "−");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        text
    }
}

fn thousands(whole: f64) -> String {
    let plain = format!("{:.0}", whole.abs());
    let mut text = String::new();
    for (index, digit) in plain.char_indices() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) && plain.len() > 4 {
            text.push(',');
        }
        text.push(digit);
    }
    if whole < 0.0 {
        format!("−{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_fitting_unit_and_three_digits() {
        assert_eq!(
            [0.065, 0.3217, 2.9341, 14.49, 356.7, 1234.0, 2e6].map(time),
            [
                "65 ns", "322 ns", "2.9 µs", "14 µs", "357 µs", "1.2 ms", "2 s"
            ]
        );
        assert_eq!(
            [0.5, 37.6, 999.6, 13_840.0].map(rate),
            ["500 KB/s", "38 MB/s", "1 GB/s", "14 GB/s"]
        );
        assert_eq!(
            [0.0, 64.0, 1500.0, 4096.0, 1048576.0].map(bytes),
            ["0 B", "64 B", "1.5 KB", "4 KB", "1 MB"]
        );
        assert_eq!(
            [6.4e6, 56_000.0, 12.0].map(count),
            ["6.4 million", "56 thousand", "12"]
        );
        assert_eq!(
            [1.0, 0.99, 31487.0, -1.7].map(digits),
            ["1", "0.99", "31,487", "−1.7"]
        );
    }
}
