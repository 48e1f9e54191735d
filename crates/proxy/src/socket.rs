//! The sockets of both sides, read into buffers that are lent while bytes are in flight.

pub(crate) use causeway_tls::buffers::{BUFFER_LEN, give_back};
pub(crate) use causeway_tls::{ClientStream, Socket};
