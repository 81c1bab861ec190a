// SPDX-License-Identifier: MIT OR Apache-2.0
//! `fi_getinfo`: decides if the provider is offered, and builds the result.
//!
//! Open MPI uses any provider that qualifies. Therefore none is offered unless the user requested
//! it: `FI_PROVIDER` or the program's hints name it, or `PORTOLAN_FABRIC=1` is set.

#![allow(unsafe_code, reason = "reads and makes structures of C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::{SocketAddr, ToSocketAddrs};
use std::slice;
use std::sync::Once;

use crate::abi::*;
use crate::errno::{Errno, status};
use crate::offer::{self, Hints, Kind, Offer};
use crate::provider_info::{FABRIC_NAME, NAME, OwnedInfo, ProviderInfo};
use crate::sockaddr::{self, CAddr, Lookup};
use portolan::binding::EndpointAddress;
use portolan::binding::settings::{self, AUTH, Setting, is_encrypting};

pub(crate) extern "C" fn getinfo(
    api: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const Info,
    out: *mut *mut Info,
) -> c_int {
    status(|| {
        // SAFETY: libfabric passes hints and C strings that are valid or null, and storage for the
        // result.
        unsafe {
            let below_rxm = flags & CORE_PROV_ONLY != 0 && layered(&providers());
            if !below_rxm && !is_requested(hints) {
                return Err(Errno::NODATA);
            }
            let query = Query {
                api,
                node: text(node),
                service: text(service),
                flags,
                below_rxm,
                hints: hints.as_ref(),
            };
            *out = query.infos()?.into_raw();
        }
        Ok(())
    })
}

/// Converts a string argument.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: guaranteed by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Arguments of `fi_getinfo`. The hints and their parts are valid for its lifetime.
struct Query<'a> {
    api: u32,
    node: Option<&'a CStr>,
    service: Option<&'a CStr>,
    flags: u64,
    /// Set if `ofi_rxm` requests connections, and the user has requested that layer.
    below_rxm: bool,
    hints: Option<&'a Info>,
}

impl Query<'_> {
    /// Returns a list of all kinds of endpoint that satisfy the hints.
    ///
    /// # Safety
    /// The parts of the hints are null or valid.
    unsafe fn infos(&self) -> Result<OwnedInfo, Errno> {
        let mut first: Option<OwnedInfo> = None;
        let mut refusal = Errno::NODATA;
        for kind in Kind::ALL {
            // SAFETY: guaranteed by the caller.
            match (unsafe { self.info(kind) }, &mut first) {
                (Ok(info), Some(first)) => first.append(info),
                (Ok(info), None) => first = Some(info),
                (Err(error), _) => refusal = error,
            }
        }
        first.ok_or(refusal)
    }

    /// Returns the information for one kind of endpoint.
    ///
    /// # Safety
    /// As for [`Query::infos`].
    unsafe fn info(&self, kind: Kind) -> Result<OwnedInfo, Errno> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let offer = self.offer(kind)?;
            let mut info = match kind {
                Kind::Unconnected => {
                    self.check_node()?;
                    ProviderInfo::new(offer, self.api, offer::ADDR_FORMAT)
                }
                Kind::Connected => self.connected_info(offer)?,
            };
            if let Some(hints) = self.hints {
                let (src, dest) = (hints.src_addr, hints.dest_addr);
                let of = |addr, len| passed(kind, addr, len);
                let (src, dest) = (of(src, hints.src_addrlen), of(dest, hints.dest_addrlen));
                info = info.or_source(src).or_destination(dest);
                info = info.with_handle(hints.handle);
            }
            if kind == Kind::Connected {
                info = info.or_any_source();
            }
            if self.below_rxm {
                info = info.with_reachable_source();
            }
            info.build()
        }
    }

    /// Returns the offer for one kind of endpoint.
    ///
    /// # Safety
    /// As for [`Query::infos`].
    unsafe fn offer(&self, kind: Kind) -> Result<Offer, Errno> {
        // libfabric's utility providers use connections of a base provider. This provider has all the
        // features that they add, so it offers connections to them only on request.
        if kind == Kind::Connected && self.flags & CORE_PROV_ONLY != 0 && !self.below_rxm {
            return Err(Errno::NODATA);
        }
        let Some(info) = self.hints.filter(|_| self.flags & PROV_ATTR_ONLY == 0) else {
            return Ok(offer::everything(kind));
        };
        // SAFETY: guaranteed by the caller; each part is null or valid.
        let hints = unsafe {
            Hints {
                api: self.api,
                info,
                tx: info.tx_attr.as_ref(),
                rx: info.rx_attr.as_ref(),
                ep: info.ep_attr.as_ref(),
                domain: info.domain_attr.as_ref(),
            }
        };
        // SAFETY: as above.
        unsafe { check_names(&hints)? };
        offer::matching(kind, &hints).map_err(|mismatch| refused(mismatch.0))
    }

    /// Checks that the host exists. Peer addresses cannot be derived from a host name, but many
    /// programs pass one and exchange addresses by other means.
    fn check_node(&self) -> Result<(), Errno> {
        let Some(node) = self
            .node
            .filter(|_| self.flags & (SOURCE | PROV_ATTR_ONLY) == 0)
        else {
            return Ok(());
        };
        let exists = node
            .to_str()
            .is_ok_and(|name| (name, 0).to_socket_addrs().is_ok());
        match exists {
            true => Ok(()),
            false => Err(refused("a peer on a host that cannot be resolved")),
        }
    }

    /// Returns information with a source (for a listener) or destination that is resolved from node
    /// and service.
    fn connected_info(&self, offer: Offer) -> Result<ProviderInfo, Errno> {
        if std::env::var(AUTH.variable).is_ok_and(|auth| is_encrypting(&auth)) {
            return Err(refused(
                "a connected endpoint with encryption: its requests are not encrypted",
            ));
        }
        let format = self.hints.map_or(FORMAT_UNSPEC, |hints| hints.addr_format);
        let has_address = self.node.is_some() || self.service.is_some();
        if !has_address || self.flags & PROV_ATTR_ONLY != 0 {
            return Ok(ProviderInfo::new(offer, self.api, format_of(format, None)));
        }
        let is_source = self.flags & SOURCE != 0;
        let lookup = Lookup {
            node: self.node,
            service: self.service,
            family: match format {
                SOCKADDR_IN => libc::AF_INET,
                SOCKADDR_IN6 => libc::AF_INET6,
                _ => 0,
            },
            passive: is_source,
            numeric: self.flags & NUMERICHOST != 0,
        };
        let Some(found) = lookup.first() else {
            return Err(refused("a host or a service that cannot be resolved"));
        };
        let info = ProviderInfo::new(offer, self.api, format_of(format, Some(&found)));
        let found = Some(bytes(&found));
        Ok(match is_source {
            true => info.or_source(found),
            false => info.or_destination(found),
        })
    }
}

/// Returns the requested address format, or the format of the address found if none was requested.
fn format_of(format: u32, found: Option<&SocketAddr>) -> u32 {
    match (format, found) {
        (FORMAT_UNSPEC, Some(SocketAddr::V6(_))) => SOCKADDR_IN6,
        (FORMAT_UNSPEC, _) => SOCKADDR_IN,
        (format, _) => format,
    }
}

/// Returns true if the user requested this provider.
///
/// # Safety
/// `hints` is null or valid.
unsafe fn is_requested(hints: *const Info) -> bool {
    // SAFETY: guaranteed by the caller; names are C strings or null.
    let by_hints = unsafe {
        hints
            .as_ref()
            .and_then(|hints| hints.fabric_attr.as_ref())
            .is_some_and(|fabric| is_our_name(fabric.prov_name))
    };
    by_hints || selected(&providers()) || is_on(&settings::FABRIC)
}

/// Returns true if a C string is the provider's name.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn is_our_name(name: *const c_char) -> bool {
    // SAFETY: not null, so the caller guarantees a C string.
    !name.is_null() && unsafe { CStr::from_ptr(name) } == NAME
}

/// Returns true if a switch in the environment is on. An invalid value counts as off and is
/// reported once, because libfabric calls `fi_getinfo` many times.
fn is_on(switch: &Setting) -> bool {
    static REPORTED: Once = Once::new();
    switch.is_on().unwrap_or_else(|error| {
        REPORTED.call_once(|| eprintln!("portolan: {error}"));
        false
    })
}

/// Returns the list of providers that the user has requested.
fn providers() -> String {
    std::env::var("FI_PROVIDER").unwrap_or_default()
}

/// Returns true if a list of providers names the layer `ofi_rxm` over this provider.
fn layered(list: &str) -> bool {
    let both = |layers: &str| {
        let (first, second) = layers.split_once(';').unwrap_or_default();
        let names = [first.trim(), second.trim()].map(str::to_ascii_lowercase);
        names == ["portolan", "ofi_rxm"] || names == ["ofi_rxm", "portolan"]
    };
    !list.starts_with('^') && list.split(',').any(both)
}

/// Returns true if a list of providers, as in `FI_PROVIDER`, names this one. A list that begins
/// with `^` excludes providers and requests none.
fn selected(list: &str) -> bool {
    let ours = NAME.to_str().unwrap_or_default();
    !list.starts_with('^')
        && list
            .split(',')
            .any(|name| name.trim().eq_ignore_ascii_case(ours))
}

/// Prints the unsupported request if `PORTOLAN_VERBOSE` is set, and returns the error.
fn refused(what: &str) -> Errno {
    if is_on(&settings::VERBOSE) {
        eprintln!("portolan: not offered to libfabric: the program requests {what}");
    }
    Errno::NODATA
}

/// Checks the fabric and domain names.
///
/// # Safety
/// Names in the hints are C strings or null.
unsafe fn check_names(hints: &Hints<'_>) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    let fits =
        |name: *const c_char| name.is_null() || unsafe { CStr::from_ptr(name) } == FABRIC_NAME;
    // SAFETY: a part of the hints.
    let fabric = unsafe { hints.info.fabric_attr.as_ref() };
    let named = hints.domain.is_none_or(|domain| fits(domain.name))
        && fabric.is_none_or(|fabric| fits(fabric.name));
    if named { Ok(()) } else { Err(Errno::NODATA) }
}

/// Returns the address that an application passes, if it is valid for the kind of endpoint.
///
/// # Safety
/// `addr` is null or has `len` bytes.
unsafe fn passed(kind: Kind, addr: *const c_void, len: usize) -> Option<Box<[u8]>> {
    match kind {
        // An address of another length is not of this provider, and is ignored.
        Kind::Unconnected if addr.is_null() || len != EndpointAddress::LEN => None,
        // SAFETY: `addr` has `len` bytes.
        Kind::Unconnected => Some(unsafe { slice::from_raw_parts(addr.cast(), len) }.into()),
        // SAFETY: as above.
        Kind::Connected => unsafe { sockaddr::read(addr, len) }.map(|addr| bytes(&addr)),
    }
}

fn bytes(addr: &SocketAddr) -> Box<[u8]> {
    CAddr::of(addr).bytes().into()
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    #[test]
    fn only_a_list_that_names_the_provider_selects_it() {
        assert!(selected("portolan"));
        assert!(selected("tcp,portolan"));
        assert!(!selected(""));
        assert!(!selected("tcp"));
        assert!(!selected("^portolan"));
        assert!(!selected("^tcp,portolan"));
        assert!(!selected("portolan;ofi_rxm"));
    }

    #[test]
    fn only_a_list_that_names_both_layers_selects_connections() {
        assert!(layered("portolan;ofi_rxm"));
        assert!(layered("tcp, ofi_rxm;Portolan"));
        for other in [
            "",
            "portolan",
            "ofi_rxm",
            "tcp;ofi_rxm",
            "^portolan;ofi_rxm",
        ] {
            assert!(!layered(other), "{other}");
        }
    }

    /// Calls `fi_getinfo` for a program that names the provider and a host.
    fn query(node: &CStr, flags: u64) -> c_int {
        // SAFETY: the hints live through the call, and their other fields are null. The result is
        // stored in `out`; it is small, so the test does not free it.
        unsafe {
            let mut fabric: FabricAttr = std::mem::zeroed();
            fabric.prov_name = NAME.as_ptr().cast_mut();
            let mut hints: Info = std::mem::zeroed();
            hints.fabric_attr = &raw mut fabric;
            let mut out = null_mut();
            getinfo(
                version(1, 17),
                node.as_ptr(),
                std::ptr::null(),
                flags,
                &raw const hints,
                &raw mut out,
            )
        }
    }

    #[test]
    fn unresolvable_host_is_refused() {
        // Not a valid host name, so no name server is queried.
        let nowhere = c"no host";
        assert_eq!(query(nowhere, 0), -libc::ENODATA);
        assert_eq!(query(nowhere, SOURCE), 0, "a source is not resolved");
        assert_eq!(query(c"127.0.0.1", 0), 0);
    }
}
