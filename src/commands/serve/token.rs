//! The token that requests have to carry.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use crate::text::sanitize;

/// Bytes of the file at most.
const MAX_FILE: u64 = 4096;

/// A token.
pub(super) struct Token(Vec<u8>);

impl Token {
    /// Reads it from a file that only its owner may have access to.
    ///
    /// # Errors
    /// Which file, what is wrong with it, what to do.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        Self::of(path).map_err(|why| format!("{}: {why}", sanitize(&path.to_string_lossy())))
    }

    fn of(path: &Path) -> Result<Self, String> {
        // A pipe without a writer is refused below, and must not hold us up here.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.bits() as i32);
        let file: File = options.open(path).map_err(|e| e.to_string())?;
        let about = file.metadata().map_err(|e| e.to_string())?;
        if !about.is_file() {
            return Err("not a regular file".to_owned());
        }
        if about.mode() & 0o077 != 0 {
            let mode = about.mode() & 0o777;
            return Err(format!("others have access to it (mode {mode:03o}); `chmod 600` it"));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(format!("longer than {MAX_FILE} bytes; expected one token"));
        }
        Self::new(bytes.trim_ascii())
    }

    pub(super) fn new(token: &[u8]) -> Result<Self, String> {
        if token.is_empty() {
            return Err("empty; expected a token".to_owned());
        }
        // Anything else cannot be sent in a header.
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err("expected one word of printable ASCII characters".to_owned());
        }
        Ok(Self(token.to_owned()))
    }

    /// Whether this is what a request has to carry. How long that takes depends on the length of
    /// what was sent, and on nothing else.
    pub(super) fn is(&self, sent: &[u8]) -> bool {
        let mut differs = self.0.len() ^ sent.len();
        for (own, sent) in self.0.iter().cycle().zip(sent) {
            differs |= usize::from(own ^ sent);
        }
        std::hint::black_box(differs) == 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_itself_and_nothing_else() {
        let token = Token::new(b"s3cret").unwrap();
        assert!(token.is(b"s3cret"));
        for other in [&b""[..], b"s", b"s3cre", b"s3creT", b"s3crets3cret", b"s3cret "] {
            assert!(!token.is(other), "{other:?}");
        }
    }

    #[test]
    fn a_file_that_is_no_secret_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8], mode: u32| {
            let path = dir.path().join(name);
            write(&path, text).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let says = |path: &Path, what: &str| {
            let why = Token::read(path).err().unwrap_or_default();
            assert!(why.contains(what) && why.starts_with(path.to_str().unwrap()), "{why}");
        };
        assert!(Token::read(&file("good", b"  abc-123\n", 0o600)).unwrap().is(b"abc-123"));
        assert!(Token::read(&file("read-only", b"a", 0o400)).is_ok());
        assert!(Token::read(&file("full", &[b'a'; 4096], 0o600)).is_ok());
        says(&file("group", b"a", 0o640), "mode 640");
        says(&file("others", b"a", 0o604), "mode 604");
        says(&file("empty", b"", 0o600), "empty");
        says(&file("blank", b" \n\t", 0o600), "empty");
        says(&file("lines", b"one\ntwo\n", 0o600), "one word");
        says(&file("binary", b"\xff\x00", 0o600), "one word");
        says(&file("long", &[b'a'; 4097], 0o600), "longer than 4096 bytes");
        says(&dir.path().join("absent"), "No such file");
        says(dir.path(), "not a regular file");
        says(Path::new("/dev/zero"), "not a regular file");
    }
}
