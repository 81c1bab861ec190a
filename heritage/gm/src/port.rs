// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initialization and end of the library and of ports, and properties of ports.

use crate::code::*;
use crate::error::{Failure, invalid};
use crate::machine::{Machine, enter, lock, must};
use crate::wire::Kind;
use crate::world::{FAST_LEN_MAX, PORTS, Port, RECV_TOKENS, SEND_TOKENS};
use portolan_ffi::guard;
use std::ffi::{CStr, c_char, c_uint};
use std::ptr;

/// A port of this process's node.
pub struct gm_port {
    number: u8,
}

/// A port of this process's node.
pub type gm_port_t = gm_port;

/// Handles are static, so one that is used after gm_close() points to valid memory.
static HANDLES: [gm_port; PORTS] = [
    gm_port { number: 0 },
    gm_port { number: 1 },
    gm_port { number: 2 },
    gm_port { number: 3 },
    gm_port { number: 4 },
    gm_port { number: 5 },
    gm_port { number: 6 },
    gm_port { number: 7 },
];

/// Returns the number of the port whose handle `port` is.
#[inline]
pub(crate) fn index_of(port: *const gm_port) -> Option<u8> {
    let offset = port.addr().wrapping_sub(HANDLES.as_ptr().addr());
    let index = offset / size_of::<gm_port>();
    (index < PORTS && offset.is_multiple_of(size_of::<gm_port>())).then(|| HANDLES[index].number)
}

/// Returns the handle of a port.
pub(crate) fn handle_of(own: u8) -> *mut gm_port {
    let handle = &HANDLES[usize::from(own) % PORTS];
    ptr::from_ref(handle).cast_mut()
}

/// Ports that the driver, the mapper and IP used.
const RESERVED: [u8; 3] = [0, 1, 3];

/// Option of gm_set_port_options(): messages of up to GM_PLUS_LEN_MAX bytes are copied when they
/// are sent.
pub const GM_PLUS_INLINE: c_uint = 1;
/// Option of gm_set_port_options(): messages of up to GM_PLUS_LEN_MAX bytes are not acknowledged.
pub const GM_PLUS_UNACKNOWLEDGED: c_uint = 2;
/// Option of gm_set_port_options(): as GM_PLUS_UNACKNOWLEDGED, and losses of the network are not
/// repaired. Such messages may overtake earlier ones.
pub const GM_PLUS_BEST_EFFORT: c_uint = 4;
/// Length of the longest message that the options of GM+ apply to, in bytes.
pub const GM_PLUS_LEN_MAX: c_uint = 256;

/// Environment variable with the options of new ports: `inline`, `unacknowledged`, `best-effort`, or
/// several with commas.
const PLUS_VARIABLE: &str = "GM_PLUS";

fn options() -> Result<c_uint, Failure> {
    let value = std::env::var(PLUS_VARIABLE).unwrap_or_default();
    let mut options = 0;
    for word in value.split(',').filter(|word| !word.is_empty()) {
        options |= match word {
            "inline" => GM_PLUS_INLINE,
            "unacknowledged" => GM_PLUS_UNACKNOWLEDGED,
            "best-effort" => GM_PLUS_BEST_EFFORT,
            _ => {
                let text = format!(
                    "{PLUS_VARIABLE} has {word:?}; use inline, unacknowledged, best-effort, or \
                     several with commas"
                );
                return Err(invalid(text));
            }
        };
    }
    Ok(options)
}

/// Initializes GM: joins the job. It may be called more than once; call gm_finalize() equally
/// often.
///
/// Errors: GM_FAILURE when the job cannot be joined, GM_ACCESS_DENIED in a child that was forked.
#[unsafe(no_mangle)]
pub extern "C" fn gm_init() -> gm_status_t {
    guard(|| {
        let mut machine = lock()?;
        machine.join()?;
        machine.uses += 1;
        Ok(GM_SUCCESS)
    })
}

/// Ends the use that one gm_init() began. The last call closes all ports. The process leaves the
/// job when it exits.
#[unsafe(no_mangle)]
pub extern "C" fn gm_finalize() {
    must("gm_finalize", || {
        let mut machine = lock()?;
        machine.uses = match machine.uses {
            0 => return Err(invalid("called without a preceding gm_init()")),
            uses => uses - 1,
        };
        if machine.uses == 0 {
            (0..PORTS).try_for_each(|own| machine.close(u8::try_from(own).unwrap_or(0)))?;
        }
        Ok(())
    });
}

/// Opens port `port_id` of unit 0 of this process's node, and stores its handle in `port`. `name`,
/// up to 31 characters, is informational. `version` is the version that the program was written
/// for.
///
/// Errors: GM_BUSY when the port is open or one of 0, 1 and 3; GM_INVALID_PORT_NUMBER,
/// GM_NO_SUCH_DEVICE, GM_INVALID_PARAMETER, GM_INCOMPATIBLE_LIB_AND_DRIVER; those of gm_init().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_open(
    port: *mut *mut gm_port,
    unit: c_uint,
    port_id: c_uint,
    name: *const c_char,
    version: c_uint,
) -> gm_status_t {
    guard(|| {
        if port.is_null() || name.is_null() {
            return Err(Failure::null("port or name"));
        }
        // SAFETY: the program passes a zero-terminated string.
        let name = unsafe { CStr::from_ptr(name) };
        if name.count_bytes() >= GM_MAX_PORT_NAME_LEN as usize {
            return Err(invalid("the name has more than 31 characters"));
        }
        if unit != 0 {
            let text = format!("unit {unit} does not exist; each process has only unit 0");
            return Err(Failure::new(GM_NO_SUCH_DEVICE, text));
        }
        let own = u8::try_from(port_id)
            .ok()
            .filter(|own| usize::from(*own) < PORTS);
        let Some(own) = own else {
            let text = format!("port {port_id} does not exist; ports are 0 to 7");
            return Err(Failure::new(GM_INVALID_PORT_NUMBER, text));
        };
        if !is_supported(version) {
            let text = format!("GM version {version:#x} is not supported; use GM_API_VERSION");
            return Err(Failure::new(GM_INCOMPATIBLE_LIB_AND_DRIVER, text));
        }
        let options = options()?;
        let mut machine = lock()?;
        machine.join()?;
        if RESERVED.contains(&own) || machine.world().port(own).is_open {
            let text = format!("port {own} is open or reserved; use 2, 4, 5, 6 or 7");
            return Err(Failure::new(GM_BUSY, text));
        }
        {
            let mut world = machine.world();
            *world.port(own) = Port::opened(options);
            world.retry_port(own);
        }
        machine.work()?;
        // SAFETY: not null; the program passes a pointer that is valid for writes.
        unsafe { port.write(handle_of(own)) };
        Ok(GM_SUCCESS)
    })
}

/// Returns whether `version` is 1.0 to 1.6, or one of 2.0.
fn is_supported(version: c_uint) -> bool {
    let first = GM_API_VERSION_1_0..=GM_API_VERSION_1_6;
    version == GM_API_VERSION_2_0
        || first.contains(&version)
        || (GM_API_VERSION_2_0 << 8..=GM_API_VERSION).contains(&version)
}

/// Closes a port. Its buffers belong to the program again, and its callbacks are no longer called.
/// Messages that arrive later fail with GM_SEND_TARGET_PORT_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn gm_close(port: *mut gm_port) {
    must("gm_close", || {
        let (mut machine, own) = enter(port)?;
        machine.close(own)
    });
}

impl Machine {
    fn close(&mut self, own: u8) -> Result<(), Failure> {
        if !self.world().port(own).is_open {
            return Ok(());
        }
        self.acknowledge()?;
        // Messages that arrived earlier are accepted or not. Messages that wait from here on are
        // refused.
        {
            let mut world = self.world();
            let port = world.port(own);
            *port = Port {
                was_open: true,
                ..Port::closed()
            };
            world.retry_port(own);
        }
        self.work()?;
        self.wait_released(own)
    }

    /// Waits until no operation accesses the memory of a closed port.
    fn wait_released(&mut self, own: u8) -> Result<(), Failure> {
        // The next port with this number starts with clean connections.
        let keys = self
            .world()
            .keys(|key, conn| key.own == own && (conn.is_disabled || !conn.sent.is_empty()));
        for key in keys {
            self.request_drop(key)?;
        }
        while self.world().borrows(own) {
            self.progress()?;
            std::thread::yield_now();
        }
        let mut world = self.world();
        world.port(own).clear_events();
        Ok(())
    }

    /// Requests that a receiver discard the messages of a closed port that it has not accepted.
    fn request_drop(&mut self, key: crate::conn::Key) -> Result<(), Failure> {
        let completion = crate::conn::Completion::new(None, ptr::null_mut());
        self.send_request(key, Kind::Drop, completion)?;
        for sending in &mut self.world().conn(key).sent {
            sending.is_orphan = true;
        }
        Ok(())
    }
}

/// Sets the options of GM+: the sum of GM_PLUS_INLINE, GM_PLUS_UNACKNOWLEDGED and
/// GM_PLUS_BEST_EFFORT, or 0. Not in the original: its options were chosen when GM+ was built.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub extern "C" fn gm_set_port_options(port: *mut gm_port, options: c_uint) -> gm_status_t {
    guard(|| {
        let (machine, own) = enter(port)?;
        let all = GM_PLUS_INLINE | GM_PLUS_UNACKNOWLEDGED | GM_PLUS_BEST_EFFORT;
        if options & !all != 0 {
            return Err(invalid(format!(
                "options {options:#x} contain an unknown bit"
            )));
        }
        machine.world().port(own).options = options;
        Ok(GM_SUCCESS)
    })
}

/// Returns the number of a port, or 0 for an invalid pointer.
#[unsafe(no_mangle)]
pub extern "C" fn gm_get_port_id(port: *const gm_port) -> c_uint {
    index_of(port).map_or(0, c_uint::from)
}

/// Returns the number of ports of a node: 8.
#[unsafe(no_mangle)]
pub extern "C" fn gm_num_ports(_port: *const gm_port) -> c_uint {
    c_uint::try_from(PORTS).unwrap_or(0)
}

/// Returns the number of send tokens of a new port.
#[unsafe(no_mangle)]
pub extern "C" fn gm_num_send_tokens(_port: *const gm_port) -> c_uint {
    SEND_TOKENS
}

/// Returns the number of receive tokens of a new port.
#[unsafe(no_mangle)]
pub extern "C" fn gm_num_receive_tokens(_port: *const gm_port) -> c_uint {
    RECV_TOKENS
}

/// Returns the length of the longest datagram in bytes: 4096.
#[unsafe(no_mangle)]
pub extern "C" fn gm_mtu(_port: *const gm_port) -> c_uint {
    c_uint::try_from(crate::pump::INLINE_LEN_MAX).unwrap_or(0)
}

/// Returns the smallest size of a message: 3, for a message without bytes.
#[unsafe(no_mangle)]
pub extern "C" fn gm_min_message_size(_port: *const gm_port) -> c_uint {
    crate::event::gm_min_size_for_length(0)
}

const _: () = assert!(
    FAST_LEN_MAX < GM_PLUS_LEN_MAX as usize,
    "short messages are small ones"
);
