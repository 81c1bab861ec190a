// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of a network interface, read through the ethtool ioctl.
//!
//! Layouts and command numbers are those of include/uapi/linux/ethtool.h. Every structure there
//! begins with its command and consists of 32-bit words, so requests are slices of words.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

const GDRVINFO: u32 = 0x03;
const GCOALESCE: u32 = 0x0e;
const GSTRINGS: u32 = 0x1b;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;

/// The string set of feature names (ETH_SS_FEATURES).
const FEATURES_SET: u32 = 4;

/// Bytes of a name in a string set (ETH_GSTRING_LEN).
const STRING_LEN: usize = 32;

/// Words of struct ethtool_coalesce.
const COALESCE_WORDS: usize = 23;

/// Words of struct ethtool_drvinfo; the driver's name is in the 32 bytes after the command.
const DRVINFO_WORDS: usize = 49;

/// Bound for the reply's memory: more features than any kernel has (about 60).
const FEATURES_MAX: u32 = 1024;

/// An offload or another feature of an interface, under the name that `ethtool -k` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Name.
    pub name: String,
    /// Set if it can be switched.
    pub available: bool,
    /// Set if it is on.
    pub active: bool,
}

/// Delays before an interface raises an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// Microseconds after a received frame.
    pub rx_us: u32,
    /// Received frames that end the delay.
    pub rx_frames: u32,
    /// Microseconds after a sent frame.
    pub tx_us: u32,
    /// Sent frames that end the delay.
    pub tx_frames: u32,
    /// Set if the driver adapts the receive values.
    pub adaptive_rx: bool,
}

/// A handle for queries of one interface.
#[derive(Debug)]
pub struct Ethtool {
    socket: UdpSocket,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Ethtool {
    /// Opens the interface `name` of this network namespace for queries.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid name, or the error of opening a socket.
    pub fn open(name: &str) -> io::Result<Ethtool> {
        let mut chars = [0; libc::IFNAMSIZ];
        // The last byte stays zero.
        if name.len() >= chars.len() || name.contains('\0') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in chars.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        // The ioctl works on any socket; this one's port is not used.
        Ok(Ethtool {
            socket: UdpSocket::bind(("127.0.0.1", 0))?,
            name: chars,
        })
    }

    /// Returns the name of the driver.
    ///
    /// # Errors
    /// The errno of the ioctl; `ENODEV` if there is no such interface.
    pub fn driver(&self) -> io::Result<String> {
        let mut words = [0; DRVINFO_WORDS];
        words[0] = GDRVINFO;
        self.request(&mut words)?;
        Ok(text(bytes_of(&words[1..1 + STRING_LEN / 4])))
    }

    /// Returns the interrupt coalescing settings.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the driver has none.
    pub fn coalescing(&self) -> io::Result<Coalescing> {
        let mut words = [0; COALESCE_WORDS];
        words[0] = GCOALESCE;
        self.request(&mut words)?;
        Ok(Coalescing {
            rx_us: words[1],
            rx_frames: words[2],
            tx_us: words[5],
            tx_frames: words[6],
            adaptive_rx: words[10] != 0,
        })
    }

    /// Returns all features.
    ///
    /// # Errors
    /// The errno of the ioctl.
    pub fn features(&self) -> io::Result<Vec<Feature>> {
        let names = self.feature_names()?;
        let block_count = names.len().div_ceil(32);
        // Command, number of blocks; then per block: available, requested, active, never changed.
        let mut words = vec![0; 2 + 4 * block_count];
        words[0] = GFEATURES;
        words[1] = u32::try_from(block_count).map_err(|_| io::ErrorKind::InvalidData)?;
        self.request(&mut words)?;
        let bit = |index: usize, column: usize| {
            words[2 + 4 * (index / 32) + column] >> (index % 32) & 1 == 1
        };
        let feature = |(index, name)| Feature {
            name,
            available: bit(index, 0),
            active: bit(index, 2),
        };
        // Bits reserved by the kernel have no name.
        let named = |feature: &Feature| !feature.name.is_empty();
        Ok(names
            .into_iter()
            .enumerate()
            .map(feature)
            .filter(named)
            .collect())
    }

    fn feature_names(&self) -> io::Result<Vec<String>> {
        // Command, reserved, 64-bit mask of string sets, then the length of each requested set.
        let mut words = [GSSET_INFO, 0, 0, 0, 0];
        let mask = (1u64 << FEATURES_SET).to_ne_bytes();
        words[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
        words[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
        self.request(&mut words)?;
        let count = words[4];
        if count > FEATURES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // Command, set, number of strings; then the strings.
        let mut words = vec![0; 3 + count as usize * STRING_LEN / 4];
        words[..3].copy_from_slice(&[GSTRINGS, FEATURES_SET, count]);
        self.request(&mut words)?;
        Ok(bytes_of(&words[3..])
            .chunks_exact(STRING_LEN)
            .map(text)
            .collect())
    }

    /// Performs the request in `words`, which the kernel overwrites with its reply.
    ///
    /// Private, because `words` must be as long as the command's reply.
    #[allow(unsafe_code, reason = "ioctl")]
    fn request(&self, words: &mut [u32]) -> io::Result<()> {
        /// The ioctl that carries all of these commands (include/uapi/linux/sockios.h).
        const SIOCETHTOOL: libc::Ioctl = 0x8946;
        let mut request = libc::ifreq {
            ifr_name: self.name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_data: words.as_mut_ptr().cast(),
            },
        };
        // SAFETY: `request` and `words` outlive the call. The kernel writes at most the reply of
        // the command in words[0]; the callers above sized `words` for it: by the fixed structure,
        // or by the count that this kernel returned for this string set, which is constant while it
        // runs.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        if result == -1 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns the text before the first zero byte.
fn text(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes
        .as_ref()
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_loopback_are_read_by_name() {
        let features = Ethtool::open("lo").unwrap().features().unwrap();
        let find = |name: &str| {
            features
                .iter()
                .find(|feature| feature.name == name)
                .unwrap()
        };
        // Always on (drivers/net/loopback.c).
        assert!(find("tx-checksum-ip-generic").active && find("loopback").active);
        assert!(features.iter().all(|feature| !feature.name.is_empty()));
    }

    #[test]
    fn missing_interfaces_are_errors() {
        let error = Ethtool::open("no-such-if").unwrap().features().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(Ethtool::open("a-name-of-sixteen").is_err());
    }
}
