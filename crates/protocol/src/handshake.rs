//! From the first byte of a connection to a session, on either side of it.
//!
//! Both machines consume themselves at every step: they take what a [`crate::buffer::Buffer`] holds, append what is
//! to be sent to a vector, and return what comes next. Dropping one at any point loses nothing but the connection.

pub mod client;
pub mod server;
