//! `explain`: pasted text in, findings out. Golden vectors with their raw numbers, real captures
//! of ss under faults, and text as it looks after terminals, chats and locales had it.

mod golden;
mod tough;
