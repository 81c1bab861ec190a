// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts `a` and `b`, joined like real hosts. A host is a network namespace, which `portolan`
//! enters by a command named `ssh`.

use super::{can_make_labs, give_ssh};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// Shell functions for topologies. `$A` and `$B` are the namespaces of the hosts, and `$N` is one
/// without connections. IPv6 is off except on hosts for which `v6` was called.
const SHELL: &str = r#"
set -e
no_v6() {
    ip netns exec $1 sh -c 'cd /proc/sys/net/ipv6/conf; echo 1 >all/disable_ipv6; echo 1 >default/disable_ipv6'
}
v6() {
    ip netns exec $1 sh -c 'cd /proc/sys/net/ipv6/conf; echo 0 >all/disable_ipv6
        echo 0 >default/disable_ipv6; echo 0 >default/accept_dad; echo 0 >all/accept_dad'
}
# join NAMESPACE INTERFACE NAMESPACE INTERFACE: a cable.
join() {
    ip -n $1 link add $2 type veth peer name $4 netns $3
    ip -n $1 link set $2 up
    ip -n $3 link set $4 up
}
# of_link NAMESPACE INTERFACE: waits for the link-local IPv6 address that the kernel gives it.
of_link() {
    for _ in $(seq 500); do
        ip -n $1 -6 address show dev $2 scope link -tentative | grep -q fe80 && return
        sleep 0.02
    done
    return 1
}
# dead NAMESPACE INTERFACE: up, with a carrier, and no host behind it.
dead() { serial=$((serial + 1)); join $1 $2 $N n$serial; }
# addr NAMESPACE INTERFACE ADDRESS...
addr() {
    namespace=$1 interface=$2; shift 2
    for address; do ip -n $namespace addr add $address dev $interface; done
}
# filter NAMESPACE HOOK RULE: a firewall of nftables.
filter() {
    ip netns exec $1 nft "table inet t { chain $2 { type filter hook $2 priority 0; $3; }; }"
}
# ingress NAMESPACE RULE: a firewall of the frames that arrive at eth0.
ingress() {
    ip netns exec $1 nft "table netdev t { chain c { type filter hook ingress device eth0 priority 0; $2; }; }"
}
serial=0
for namespace in $A $B $N; do
    ip netns add $namespace
    ip -n $namespace link set lo up
    no_v6 $namespace
done
"#;

/// Runs a command in the namespace of the host that follows ssh's options.
const SSH: &str = r#"
shift 5
host=$1; shift
exec ip netns exec "$HOSTS-$host" sh -c "$*"
"#;

/// The hosts of one test. Their namespaces are removed on drop.
pub(crate) struct Hosts {
    prefix: String,
    directory: TempDir,
}

impl Hosts {
    /// Creates the hosts and joins them by `script`. Prints SKIPPED and returns `None` where that
    /// is not possible.
    pub(crate) fn made(script: &str) -> Option<Hosts> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !can_make_labs() {
            return None;
        }
        let needs_nft = ["filter ", "ingress ", " nft "]
            .iter()
            .any(|word| script.contains(word));
        if needs_nft && Command::new("nft").arg("--version").output().is_err() {
            eprintln!("SKIPPED: a firewall needs nftables");
            return None;
        }
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let hosts = Hosts {
            // No name of a lab begins like this.
            prefix: format!("hosts{}-{next}", std::process::id()),
            directory: tempfile::tempdir().unwrap(),
        };
        let made = Command::new("sh")
            .args(["-c", &format!("{SHELL}\n{script}")])
            .envs(["A", "B", "N"].map(|name| (name, hosts.namespace(name))))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(made.status.success(), "{script}\n{said}");
        Some(hosts)
    }

    /// Returns the namespace of host `A`, `B` or `N`.
    pub(crate) fn namespace(&self, host: &str) -> String {
        format!("{}-{}", self.prefix, host.to_lowercase())
    }

    /// Returns a directory that is removed with the hosts.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Makes the `ssh` of `command` lead to these hosts.
    pub(crate) fn give_ssh(&self, command: &mut Command) {
        give_ssh(command, self.directory(), SSH);
        command.env("HOSTS", &self.prefix);
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in ["A", "B", "N"] {
            let name = self.namespace(host);
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}
