// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for several requests of any kind: sends, receives, remote memory, collectives.

use super::{Awaited, Node};
use crate::engine::{Engine, Inner};
use crate::error::Error;
use crate::ops::{Completion, Failed, Request};
use portolan_proto::{Instant, OpId, PeerId};
use std::time::Duration;

/// A request that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Index that the request had before the call.
    pub index: usize,
    /// The request.
    pub request: Request,
    /// Its result.
    pub result: Result<Completion, Failed>,
}

impl Node {
    /// Waits until one of `requests` has ended, and removes it. Returns `None` if there are none.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// node.open(8, PortConfig::default())?;
    /// let mut requests = vec![node.post_recv(7, vec![0; 8])?, node.post_recv(8, vec![0; 8])?];
    /// node.send(Target::new(node.rank(), 8), b"ahoy")?;
    /// node.send(Target::new(node.rank(), 7), b"adieu")?;
    /// while let Some(ended) = node.wait_any(&mut requests) {
    ///     let completion = ended.result?;
    ///     println!("{} bytes", completion.len);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_any(&mut self, requests: &mut Vec<Request>) -> Option<Ended> {
        self.await_any(requests, None);
        self.take_first(requests)
    }

    /// Waits like [`Node::wait_any`], at most for `timeout`. Returns `None` if no request has ended
    /// by then. All requests then stay valid.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let mut requests = vec![node.post_recv(7, vec![0; 8])?];
    /// assert!(node.wait_any_timeout(&mut requests, Duration::from_millis(1)).is_none());
    /// # node.cancel(requests[0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_any_timeout(
        &mut self,
        requests: &mut Vec<Request>,
        timeout: Duration,
    ) -> Option<Ended> {
        self.await_any(requests, Some(timeout));
        self.take_first(requests)
    }

    /// Waits until at least one of `requests` has ended. Removes and returns all that have ended,
    /// in their order.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let to = Target::new(node.rank(), 7);
    /// let mut requests = vec![node.isend(to, vec![1])?, node.post_recv(7, vec![0; 8])?];
    /// while !requests.is_empty() {
    ///     for ended in node.wait_some(&mut requests) {
    ///         assert_eq!(ended.result?.len, 1);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_some(&mut self, requests: &mut Vec<Request>) -> Vec<Ended> {
        self.await_any(requests, None);
        let engine = &mut *self.engine.enter();
        let mut ended = Vec::new();
        let mut index = 0;
        requests.retain(|request| {
            let result = engine.take_ended(request.0);
            ended.extend(result.map(|result| Ended {
                index,
                request: *request,
                result,
            }));
            index += 1;
            ended.last().is_none_or(|last| last.index != index - 1)
        });
        ended
    }

    /// Waits until all of `requests` have ended. Returns their results in the same order.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let to = Target::new(node.rank(), 7);
    /// let requests = [node.isend(to, vec![1])?, node.post_recv(7, vec![0; 8])?];
    /// for result in node.wait_all(requests) {
    ///     assert_eq!(result?.len, 1);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_all(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Vec<Result<Completion, Failed>> {
        let requests = requests.into_iter();
        requests.map(|request| self.wait(request)).collect()
    }

    /// Makes progress once. If one of `requests` has ended, removes and returns it.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let mut requests = vec![node.post_recv(7, vec![0; 8])?];
    /// assert!(node.test_any(&mut requests).is_none());
    /// node.send(Target::new(node.rank(), 7), b"ahoy")?;
    /// while node.test_any(&mut requests).is_none() {}
    /// assert!(requests.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn test_any(&mut self, requests: &mut Vec<Request>) -> Option<Ended> {
        {
            let engine = &mut *self.engine.enter();
            if !engine.inner.has_any_done(requests) {
                engine.progress_all();
                if !engine.inner.has_any_done(requests) {
                    engine.on_empty_polls(requests);
                }
            }
        }
        self.take_first(requests)
    }

    /// Waits until one of `requests` has ended, or for `timeout`.
    fn await_any(&mut self, requests: &[Request], timeout: Option<Duration>) {
        let engine = &mut *self.engine.enter();
        if requests.is_empty() || engine.inner.has_any_done(requests) {
            return;
        }
        let about = engine.inner.all_awaited(requests);
        let awaited = Awaited::Any(requests.len());
        match timeout {
            None => {
                self.waiter.until(engine, &about, awaited, |inner| {
                    inner.has_any_done(requests)
                        || inner.has_no_sender() && inner.is_any_from_anybody(requests)
                });
                requests
                    .iter()
                    .for_each(|one| engine.inner.end_orphan(one.0));
            }
            Some(timeout) => {
                let deadline: Instant = engine.inner.deadline(timeout);
                self.waiter
                    .until_deadline(engine, &about, awaited, deadline, |inner| {
                        inner.has_any_done(requests)
                            || inner.is_deserted() && inner.is_any_from_anybody(requests)
                    });
                if !engine.inner.has_any_done(requests) {
                    engine.on_empty_polls(requests);
                }
            }
        }
    }

    /// Removes the first request that has ended.
    fn take_first(&mut self, requests: &mut Vec<Request>) -> Option<Ended> {
        let engine = &mut *self.engine.enter();
        let mut listed = requests.iter().enumerate();
        let (index, result) = listed
            .find_map(|(index, one)| engine.take_ended(one.0).map(|result| (index, result)))?;
        let request = requests.remove(index);
        Some(Ended {
            index,
            request,
            result,
        })
    }
}

impl Engine {
    /// Removes an operation that has ended, and returns its result.
    fn take_ended(&mut self, op: OpId) -> Option<Result<Completion, Failed>> {
        if let Err(forked) = self.inner.check_owner() {
            return Some(Err(forked.into()));
        }
        let ops = &mut self.inner.ops;
        if ops.is_handled(op) {
            return Some(Err(Error::StaleRequest.into()));
        }
        if !ops.is_done(op) {
            return None;
        }
        let done = ops.finish(op);
        Some(done.unwrap_or_else(|| Err(self.inner.stale().into())))
    }

    /// Does the work of a wait for a program that polls.
    fn on_empty_polls(&mut self, requests: &[Request]) {
        for request in requests {
            self.on_empty_poll(request.0);
        }
    }
}

impl Inner {
    /// Tests whether one of the operations has ended, or can never end.
    fn has_any_done(&self, requests: &[Request]) -> bool {
        let mut ops = requests.iter().map(|request| request.0);
        ops.any(|op| self.ops.is_done(op) || self.ops.is_handled(op))
    }

    /// Returns the peers that alone can complete one of the operations, each once.
    fn all_awaited(&self, requests: &[Request]) -> Vec<PeerId> {
        let peers = requests.iter().map(|request| self.awaited_peer(request.0));
        let mut peers: Vec<PeerId> = peers.flatten().collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    fn is_any_from_anybody(&self, requests: &[Request]) -> bool {
        requests.iter().any(|one| self.is_from_anybody(one.0))
    }
}
