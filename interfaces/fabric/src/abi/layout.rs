// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the layouts in this crate with the installed libfabric headers.
//!
//! The C compiler checks one static assertion for each field and each size.

use std::io::Write;
use std::mem::offset_of;
use std::process::{Command, Stdio};

use super::*;

const HEADERS: &str = "#include <stddef.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_atomic.h>\n\
#include <rdma/fi_cm.h>\n#include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n\
#include <rdma/fi_eq.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_tagged.h>\n\
#include <rdma/providers/fi_prov.h>\n";

/// Appends assertions that C fields have the same offsets as the Rust fields. A C name in brackets
/// follows a Rust name that differs from it.
macro_rules! offsets {
    ($text:expr, $c:literal, $rust:ty: $($field:ident $(($c_field:literal))?),+ $(,)?) => {$({
        let name = [$($c_field,)? stringify!($field)][0];
        let offset = offset_of!($rust, $field);
        *$text += &format!(
            "_Static_assert(offsetof(struct {c}, {name}) == {offset}, \"{c}.{name}\");\n",
            c = $c,
        );
    })+};
}

/// Appends the size assertion for a structure that applications allocate, alone or in arrays.
fn size(text: &mut String, c: &str, size: usize) {
    *text += &format!("_Static_assert(sizeof(struct {c}) >= {size}, \"size of {c}\");\n");
}

fn info(text: &mut String) {
    offsets!(text, "fi_info", Info: caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr,
        dest_addr, handle, tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, nic);
    offsets!(text, "fi_tx_attr", TxAttr: mode, op_flags, msg_order, comp_order, inject_size, size,
        iov_limit, rma_iov_limit, tclass);
    offsets!(text, "fi_rx_attr", RxAttr: mode, op_flags, msg_order, comp_order,
        total_buffered_recv, size, iov_limit);
    offsets!(text, "fi_ep_attr", EpAttr: ep_type("type"), protocol, protocol_version, max_msg_size,
        msg_prefix_size, max_order_raw_size, max_order_war_size, max_order_waw_size,
        mem_tag_format, tx_ctx_cnt, rx_ctx_cnt, auth_key_size, auth_key);
    offsets!(text, "fi_domain_attr", DomainAttr: name, threading, control_progress, data_progress,
        resource_mgmt, av_type, mr_mode, mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt,
        rx_ctx_cnt, max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt,
        mr_iov_limit, caps, mode, auth_key, auth_key_size, max_err_data, mr_cnt, tclass);
    offsets!(text, "fi_fabric_attr", FabricAttr: name, prov_name, prov_version, api_version);
    offsets!(text, "fi_provider", Provider: fi_version, context, name, getinfo, fabric, cleanup);
}

fn messages(text: &mut String) {
    offsets!(text, "fi_msg", Msg: iov("msg_iov"), desc, iov_count, addr, context, data);
    offsets!(text, "fi_msg_tagged", MsgTagged: iov("msg_iov"), iov_count, addr, tag, ignore,
        context, data);
    offsets!(text, "fi_msg_rma", MsgRma: iov("msg_iov"), iov_count, addr, rma_iov, rma_iov_count,
        context, data);
    offsets!(text, "fi_rma_iov", RmaIov: addr, len, key);
    offsets!(text, "fi_ioc", Ioc: addr, count);
    offsets!(text, "fi_rma_ioc", RmaIoc: addr, count, key);
    offsets!(text, "fi_msg_atomic", MsgAtomic: iov("msg_iov"), iov_count, addr, rma_iov,
        rma_iov_count, datatype, op, context, data);
    offsets!(text, "fi_atomic_attr", AtomicAttr: count, size);
    offsets!(text, "fi_av_attr", AvAttr: av_type("type"), rx_ctx_bits, count, ep_per_node, name,
        map_addr, flags);
    offsets!(text, "fi_mr_attr", MrAttr: iov("mr_iov"), iov_count, access, offset, requested_key,
        context, auth_key_size, auth_key, iface, device);
    offsets!(text, "fi_cq_attr", CqAttr: flags, format, wait_obj, signaling_vector, wait_cond,
        wait_set);
    offsets!(text, "fi_cntr_attr", CntrAttr: events, wait_obj, wait_set, flags);
    offsets!(text, "fi_eq_attr", EqAttr: flags, wait_obj, signaling_vector, wait_set);
    offsets!(text, "fi_cq_tagged_entry", CqTaggedEntry: op_context, flags, len, buf, data, tag);
    offsets!(text, "fi_cq_err_entry", CqErrEntry: op_context, flags, len, buf, data, tag, olen,
        err, prov_errno, err_data, err_data_size);
    offsets!(text, "fi_eq_cm_entry", EqCmEntry: fid, info);
    offsets!(text, "fi_eq_err_entry", EqErrEntry: fid, context, data, err, prov_errno, err_data,
        err_data_size);
    size(text, "fi_eq_err_entry", size_of::<EqErrEntry>());
    size(text, "fi_eq_cm_entry", size_of::<EqCmEntry>());
    size(text, "fi_cq_err_entry", size_of::<CqErrEntry>());
    size(text, "fi_cq_tagged_entry", size_of::<CqTaggedEntry>());
    size(text, "fi_domain_attr", size_of::<DomainAttr>());
}

fn objects(text: &mut String) {
    offsets!(text, "fid", Fid: context, ops);
    offsets!(text, "fid_fabric", FidFabric: ops, api_version);
    offsets!(text, "fid_domain", FidDomain: ops, mr);
    offsets!(text, "fid_ep", FidEp: ops, cm, msg, rma, tagged, atomic, collective);
    offsets!(text, "fid_pep", FidPep: ops, cm);
    offsets!(text, "fid_mr", FidMr: mem_desc, key);
    offsets!(text, "fi_ops", Ops: close, bind, control, ops_open);
    offsets!(text, "fi_ops_fabric", OpsFabric: domain, passive_ep, eq_open, wait_open, trywait);
    offsets!(text, "fi_ops_domain", OpsDomain: av_open, cq_open, endpoint, scalable_ep, cntr_open,
        poll_open, stx_ctx, srx_ctx, query_atomic);
    offsets!(text, "fi_ops_mr", OpsMr: reg, regv, regattr);
    offsets!(text, "fi_ops_av", OpsAv: insert, insertsvc, insertsym, remove, lookup, straddr);
    offsets!(text, "fi_ops_cq", OpsCq: read, readfrom, readerr, sread, sreadfrom, signal, strerror);
    offsets!(text, "fi_ops_cntr", OpsCntr: read, readerr, add, set, wait, adderr, seterr);
    offsets!(text, "fi_ops_eq", OpsEq: read, readerr, write, sread, strerror);
    offsets!(text, "fi_ops_ep", OpsEp: cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left,
        tx_size_left);
    offsets!(text, "fi_ops_cm", OpsCm: setname, getname, getpeer, connect, listen, accept, reject,
        shutdown, join);
    offsets!(text, "fi_ops_msg", OpsMsg: recv, recvv, recvmsg, send, sendv, sendmsg, inject,
        senddata, injectdata);
    offsets!(text, "fi_ops_tagged", OpsTagged: recv, recvv, recvmsg, send, sendv, sendmsg, inject,
        senddata, injectdata);
    offsets!(text, "fi_ops_rma", OpsRma: read, readv, readmsg, write, writev, writemsg, inject,
        writedata, injectdata);
    offsets!(text, "fi_ops_atomic", OpsAtomic: write, writev, writemsg, inject, readwrite,
        readwritev, readwritemsg, compwrite, compwritev, compwritemsg, writevalid, readwritevalid,
        compwritevalid);
}

fn numbers(text: &mut String) {
    let pairs: &[(&str, u64)] = &[
        ("FI_MULTI_RECV", MULTI_RECV),
        ("FI_REMOTE_CQ_DATA", REMOTE_CQ_DATA),
        ("FI_PEEK", PEEK),
        ("FI_CLAIM", CLAIM),
        ("FI_DISCARD", DISCARD),
        ("FI_COMPLETION", COMPLETION),
        ("FI_DELIVERY_COMPLETE", DELIVERY_COMPLETE),
        ("FI_MATCH_COMPLETE", MATCH_COMPLETE),
        ("FI_SELECTIVE_COMPLETION", SELECTIVE_COMPLETION),
        ("FI_DIRECTED_RECV", DIRECTED_RECV),
        ("FI_SOURCE", SOURCE),
        ("FI_LOCAL_COMM", LOCAL_COMM),
        ("FI_REMOTE_COMM", REMOTE_COMM),
        ("FI_ORDER_SAS", ORDER_SAS),
        ("FI_NUMERICHOST", NUMERICHOST),
        ("FI_SOCKADDR", u64::from(SOCKADDR)),
        ("FI_SOCKADDR_IN", u64::from(SOCKADDR_IN)),
        ("FI_SOCKADDR_IN6", u64::from(SOCKADDR_IN6)),
        ("FI_CONNREQ", u64::from(CONNREQ)),
        ("FI_CONNECTED", u64::from(CONNECTED)),
        ("FI_SHUTDOWN", u64::from(SHUTDOWN)),
        ("FI_BACKLOG", BACKLOG as u64),
        ("FI_OPT_CM_DATA_SIZE", OPT_CM_DATA_SIZE as u64),
        ("FI_CLASS_PEP", CLASS_PEP as u64),
        ("FI_CLASS_CONNREQ", CLASS_CONNREQ as u64),
        ("FI_EP_MSG", EP_MSG as u64),
        ("FI_ENOEQ", ENOEQ as u64),
        ("FI_GETWAIT", GETWAIT as u64),
        ("FI_ENABLE", ENABLE as u64),
        ("FI_CLASS_CNTR", CLASS_CNTR as u64),
        ("FI_CLASS_AV", CLASS_AV as u64),
        ("FI_EP_RDM", EP_RDM as u64),
        ("FI_MR_PROV_KEY", MR_PROV_KEY as u64),
        ("FI_THREAD_DOMAIN", THREAD_DOMAIN as u64),
        ("FI_EAVAIL", EAVAIL as u64),
        ("FI_ETRUNC", ETRUNC as u64),
        ("FI_ENOAV", ENOAV as u64),
    ];
    for (name, value) in pairs {
        *text +=
            &format!("_Static_assert((unsigned long long){name} == {value}ull, \"{name}\");\n");
    }
}

/// Returns the C compiler's error output for `text`, which is empty if it compiles.
fn complaints(text: &str) -> String {
    let mut cc = Command::new("cc")
        .args(["-std=gnu11", "-fsyntax-only", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    cc.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = cc.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn layouts_and_numbers_match_installed_headers() {
    if !std::path::Path::new("/usr/include/rdma/fabric.h").exists() {
        println!("SKIPPED: libfabric's headers are not installed (Debian: libfabric-dev)");
        return;
    }
    let mut text = HEADERS.to_owned();
    info(&mut text);
    messages(&mut text);
    objects(&mut text);
    numbers(&mut text);
    assert_eq!(complaints(&text), "");
    // Check that a wrong offset is detected.
    offsets!(&mut text, "fi_info", Info: caps("mode"));
    assert!(complaints(&text).contains("fi_info.mode"));
}
