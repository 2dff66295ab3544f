//! Where in a payload a byte stands: what it means depends on it.

/// Where in a payload a byte stands. Whatever the bytes are, it stands somewhere.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    state: State,
    /// The number under way.
    n: u64,
    shift: u32,
    /// Names that are to come, and bytes of what is under way.
    names: u64,
    left: u64,
    section: u32,
    offset: u32,
}

/// What the next byte is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Number of new names.
    #[default]
    Names,
    NameLength,
    Name,
    /// Number of a section.
    Head,
    HeadLength,
    HeadName,
    Length,
    Bytes,
}

/// Sections that are told apart.
const SECTIONS: u32 = 48;
/// Kinds of places: sections, and what stands between them.
pub(super) const PLACES: usize = 64;

impl Place {
    /// Where the next byte is: section, or what else it is of; place within it.
    pub(super) fn now(&self) -> (u32, u32) {
        match self.state {
            State::Bytes => (self.section, self.offset),
            other => (SECTIONS + other as u32, self.section),
        }
    }

    /// Moves over a byte.
    pub(super) fn step(&mut self, byte: u8) {
        self.offset = self.offset.saturating_add(1);
        if matches!(self.state, State::Name | State::HeadName | State::Bytes) {
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                self.behind();
            }
            return;
        }
        self.n |= u64::from(byte & 0x7f).checked_shl(self.shift).unwrap_or(0);
        self.shift += 7;
        if byte & 0x80 != 0 && self.shift < 64 {
            return;
        }
        let n = std::mem::take(&mut self.n);
        self.shift = 0;
        self.left = n;
        match self.state {
            State::Names => {
                self.names = n;
                self.state = if n > 0 { State::NameLength } else { State::Head };
            }
            State::NameLength => {
                self.state = State::Name;
                if n == 0 {
                    self.behind();
                }
            }
            State::Head => {
                self.section = (n >> 1).min(u64::from(SECTIONS) - 1) as u32;
                self.state = if self.section == 0 { State::HeadLength } else { State::Length };
            }
            State::HeadLength => self.state = if n > 0 { State::HeadName } else { State::Length },
            _ if n == 0 => self.state = State::Head,
            _ => (self.state, self.offset) = (State::Bytes, 0),
        }
    }

    /// Behind a text or a section.
    fn behind(&mut self) {
        self.state = match self.state {
            State::Name => {
                self.names = self.names.saturating_sub(1);
                if self.names > 0 { State::NameLength } else { State::Head }
            }
            State::HeadName => State::Length,
            _ => State::Head,
        };
    }
}
