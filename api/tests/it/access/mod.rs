//! The access room over a real socket.

mod matrix;
