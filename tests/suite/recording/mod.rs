//! Recordings of the scripted box: written, read back, cut, hurt, and gone on with.

mod damage;
mod golden;
mod hostile;
mod info;
mod redact;
mod roundtrip;
