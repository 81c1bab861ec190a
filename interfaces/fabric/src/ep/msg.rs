// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operation tables of plain and tagged messages. `desc` arguments are ignored, because memory
//! needs no registration for sends.

use std::ffi::c_void;
use std::ptr::null_mut;

use libc::iovec;

use super::data_of;
use super::message::{Incoming, Outgoing, post, submit, submit_copy};
use super::pieces::{Buffer, List};
use crate::abi::*;

/// Defines the module `$name` with a table of type `$Ops`, whose calls by structure take a `$Msg`.
/// Tagged calls have a tag after the peer; tagged receives also have the bits of the tag to ignore.
macro_rules! table {
    ($name:ident, $Ops:ident, $Msg:ident $(, $tag:ident, $ignore:ident)?) => {
        pub(super) mod $name {
            use super::*;

            pub(crate) static OPS: $Ops = $Ops {
                size: size_of::<$Ops>(),
                recv,
                recvv,
                recvmsg,
                send,
                sendv,
                sendmsg,
                inject,
                senddata,
                injectdata,
            };

            extern "C" fn recv(
                ep: *mut FidEp,
                buf: *mut c_void,
                len: usize,
                _desc: *mut c_void,
                from: u64,
                $($tag: u64, $ignore: u64,)?
                context: *mut c_void,
            ) -> isize {
                let what = |flags| Incoming::plain(from, context, flags)$(.tagged($tag, $ignore))?;
                // SAFETY: the application does not access the buffer until the completion.
                unsafe { post(ep, Buffer(buf, len), what) }
            }

            extern "C" fn recvv(
                ep: *mut FidEp,
                iov: *const iovec,
                _desc: *mut *mut c_void,
                count: usize,
                from: u64,
                $($tag: u64, $ignore: u64,)?
                context: *mut c_void,
            ) -> isize {
                let what = |flags| Incoming::plain(from, context, flags)$(.tagged($tag, $ignore))?;
                // SAFETY: as in `recv`, for each of the pieces.
                unsafe { post(ep, List(iov, count), what) }
            }

            extern "C" fn recvmsg(ep: *mut FidEp, msg: *const $Msg, flags: u64) -> isize {
                // SAFETY: the application's structure; its pieces are not accessed until the
                // completion.
                unsafe {
                    let msg = &*msg;
                    let what = |_| {
                        Incoming::plain(msg.addr, msg.context, flags)$(.tagged(msg.$tag, msg.$ignore))?
                    };
                    post(ep, List(msg.iov, msg.iov_count), what)
                }
            }

            extern "C" fn send(
                ep: *mut FidEp,
                buf: *const c_void,
                len: usize,
                _desc: *mut c_void,
                to: u64,
                $($tag: u64,)?
                context: *mut c_void,
            ) -> isize {
                let what = |flags| Outgoing::plain(to, None, context, flags)$(.tagged($tag))?;
                // SAFETY: the application does not change the message until the completion.
                unsafe { submit(ep, Buffer(buf, len), what) }
            }

            extern "C" fn sendv(
                ep: *mut FidEp,
                iov: *const iovec,
                _desc: *mut *mut c_void,
                count: usize,
                to: u64,
                $($tag: u64,)?
                context: *mut c_void,
            ) -> isize {
                let what = |flags| Outgoing::plain(to, None, context, flags)$(.tagged($tag))?;
                // SAFETY: as in `send`, for each of the pieces.
                unsafe { submit(ep, List(iov, count), what) }
            }

            extern "C" fn sendmsg(ep: *mut FidEp, msg: *const $Msg, flags: u64) -> isize {
                // SAFETY: the application's structure; its pieces are not changed until the
                // completion.
                unsafe {
                    let msg = &*msg;
                    let imm = data_of(msg.data, flags);
                    let what = |_| {
                        Outgoing::plain(msg.addr, imm, msg.context, flags)$(.tagged(msg.$tag))?
                    };
                    submit(ep, List(msg.iov, msg.iov_count), what)
                }
            }

            extern "C" fn senddata(
                ep: *mut FidEp,
                buf: *const c_void,
                len: usize,
                _desc: *mut c_void,
                data: u64,
                to: u64,
                $($tag: u64,)?
                context: *mut c_void,
            ) -> isize {
                let what = |flags| Outgoing::plain(to, Some(data), context, flags)$(.tagged($tag))?;
                // SAFETY: as in `send`.
                unsafe { submit(ep, Buffer(buf, len), what) }
            }

            extern "C" fn inject(
                ep: *mut FidEp,
                buf: *const c_void,
                len: usize,
                to: u64,
                $($tag: u64,)?
            ) -> isize {
                let what = Outgoing::plain(to, None, null_mut(), 0)$(.tagged($tag))?;
                // SAFETY: the application's message is readable during this call.
                unsafe { submit_copy(ep, Buffer(buf, len), &what) }
            }

            extern "C" fn injectdata(
                ep: *mut FidEp,
                buf: *const c_void,
                len: usize,
                data: u64,
                to: u64,
                $($tag: u64,)?
            ) -> isize {
                let what = Outgoing::plain(to, Some(data), null_mut(), 0)$(.tagged($tag))?;
                // SAFETY: as in `inject`.
                unsafe { submit_copy(ep, Buffer(buf, len), &what) }
            }
        }
    };
}

table!(plain, OpsMsg, Msg);
table!(tagged, OpsTagged, MsgTagged, tag, ignore);
