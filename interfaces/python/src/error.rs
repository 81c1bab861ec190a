// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceptions with the texts of the library's errors.

use portolan::{Error as LibraryError, Failed};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    portolan,
    Error,
    PyException,
    "Failure of a call of portolan."
);
create_exception!(
    portolan,
    PeerGone,
    Error,
    "The peer has failed, and so do its operations."
);
create_exception!(
    portolan,
    NobodyLeft,
    Error,
    "No message can arrive: all other processes have ended."
);
create_exception!(
    portolan,
    NoSuchRank,
    Error,
    "There is no such process, or no such member."
);
create_exception!(
    portolan,
    Truncated,
    Error,
    "The message was longer than the buffer."
);
create_exception!(
    portolan,
    CollectiveMismatch,
    Error,
    "Members called different collective operations."
);
create_exception!(
    portolan,
    RemoteRefused,
    Error,
    "The target refused the operation on its memory."
);
create_exception!(portolan, PortClosed, Error, "The port was not opened.");
create_exception!(portolan, PortInUse, Error, "The port is already open.");
create_exception!(portolan, Cancelled, Error, "The operation was cancelled.");
create_exception!(
    portolan,
    TimedOut,
    Error,
    "A call had no reply before its timeout."
);
create_exception!(
    portolan,
    Closed,
    Error,
    "The node was closed, or cannot be used in a handler."
);

/// Adds the exceptions to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("PeerGone", py.get_type::<PeerGone>())?;
    module.add("NobodyLeft", py.get_type::<NobodyLeft>())?;
    module.add("NoSuchRank", py.get_type::<NoSuchRank>())?;
    module.add("Truncated", py.get_type::<Truncated>())?;
    module.add("CollectiveMismatch", py.get_type::<CollectiveMismatch>())?;
    module.add("RemoteRefused", py.get_type::<RemoteRefused>())?;
    module.add("PortClosed", py.get_type::<PortClosed>())?;
    module.add("PortInUse", py.get_type::<PortInUse>())?;
    module.add("Cancelled", py.get_type::<Cancelled>())?;
    module.add("TimedOut", py.get_type::<TimedOut>())?;
    module.add("Closed", py.get_type::<Closed>())
}

/// Failure of a call: of the library, or of Python code that it ran.
pub(crate) enum Failure {
    Library(Box<LibraryError>),
    Closed,
    Python(PyErr),
}

impl From<LibraryError> for Failure {
    fn from(error: LibraryError) -> Failure {
        Failure::Library(Box::new(error))
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Failure {
        Failure::from(LibraryError::from(failed))
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        match failure {
            Failure::Library(error) => exception(&error),
            Failure::Closed => {
                Closed::new_err("the node was closed; join again with portolan.Node()")
            }
            Failure::Python(error) => error,
        }
    }
}

/// Returns the exception for an error.
pub(crate) fn exception(error: &LibraryError) -> PyErr {
    use LibraryError as E;
    let text = error.to_string();
    match error {
        E::PeerGone { .. } => PeerGone::new_err(text),
        E::NobodyLeft { .. } => NobodyLeft::new_err(text),
        E::NoSuchRank { .. } | E::NoSuchMember { .. } => NoSuchRank::new_err(text),
        E::Truncated { .. } | E::TruncatedTagged { .. } => Truncated::new_err(text),
        E::CollectiveMismatch(_) => CollectiveMismatch::new_err(text),
        E::RemoteRefused { .. } => RemoteRefused::new_err(text),
        E::PortClosed { .. } => PortClosed::new_err(text),
        E::PortInUse { .. } | E::PortHandled { .. } => PortInUse::new_err(text),
        E::Cancelled => Cancelled::new_err(text),
        E::TimedOut { .. } => TimedOut::new_err(text),
        _ => Error::new_err(text),
    }
}
