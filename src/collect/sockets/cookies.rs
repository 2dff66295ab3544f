//! A set of cookies that also finds the row again: sock_diag resumes a dump by position, so
//! a socket that moves inside its hash chain is sent twice, and two readings are compared
//! socket by socket.
//!
//! Open addressing over row numbers, half full at most, kept between readings: 8 bytes and
//! one random access per socket, no allocation once it has its size.

const EMPTY: u32 = u32::MAX;

/// Row numbers by cookie. The cookies themselves stay in the rows' column, which every call
/// is given.
#[derive(Debug, Default)]
pub struct CookieMap {
    slots: Vec<u32>,
    len: usize,
}

impl CookieMap {
    /// Forgets all rows and makes room for `expected`.
    pub fn reset(&mut self, expected: usize) {
        let want = expected.saturating_mul(2).next_power_of_two().max(64);
        self.len = 0;
        // A table that is far too big costs more to clear than to build anew.
        if self.slots.len() < want || self.slots.len() > want.saturating_mul(8) {
            self.slots = vec![EMPTY; want];
        } else {
            self.slots.fill(EMPTY);
        }
    }

    /// The row that has `cookie`.
    #[must_use]
    pub fn find(&self, cookie: u64, cookies: &[u64]) -> Option<usize> {
        let mut at = self.home(cookie)?;
        for _ in 0..self.slots.len() {
            let row = *self.slots.get(at)?;
            if row == EMPTY {
                return None;
            }
            if cookies.get(row as usize) == Some(&cookie) {
                return Some(row as usize);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        None
    }

    /// Adds `cookie`, which is about to become the last row of `cookies`. False when some
    /// row has it already.
    #[inline]
    pub fn insert(&mut self, cookie: u64, cookies: &[u64]) -> bool {
        if self.len.saturating_mul(2) >= self.slots.len() {
            self.grow(cookies);
        }
        self.put(cookie, cookies.len() as u32, cookies)
    }

    #[inline]
    fn put(&mut self, cookie: u64, row: u32, cookies: &[u64]) -> bool {
        let Some(mut at) = self.home(cookie) else { return true };
        let mask = self.slots.len() - 1;
        // At most half full, so an empty slot comes soon.
        while let Some(slot) = self.slots.get_mut(at) {
            if *slot == EMPTY {
                *slot = row;
                self.len += 1;
                return true;
            }
            if cookies.get(*slot as usize) == Some(&cookie) {
                return false;
            }
            at = (at + 1) & mask;
        }
        true
    }

    #[cold]
    fn grow(&mut self, cookies: &[u64]) {
        let want = cookies.len().saturating_add(1).saturating_mul(4);
        self.slots = vec![EMPTY; want.next_power_of_two().max(64)];
        self.len = 0;
        for (row, cookie) in cookies.iter().enumerate() {
            self.put(*cookie, row as u32, cookies);
        }
    }

    /// Where the search for a cookie begins; `None` before the first `reset`.
    #[inline]
    fn home(&self, cookie: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        // Cookies are handed out in runs; the multiplication spreads the runs.
        let hash = cookie.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Some(hash as usize & (self.slots.len() - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cookie_is_taken_once_and_found_again() {
        let mut map = CookieMap::default();
        for round in 0..3u64 {
            map.reset(10);
            let mut column = Vec::new();
            for i in 0..5000u64 {
                let cookie = (i << 32) ^ (i * 7 + round);
                assert!(map.insert(cookie, &column));
                column.push(cookie);
                assert!(!map.insert(cookie, &column));
            }
            for (row, cookie) in column.iter().enumerate() {
                assert_eq!(map.find(*cookie, &column), Some(row));
            }
            assert_eq!(map.find(u64::MAX, &column), None);
        }
    }

    #[test]
    fn an_empty_map_finds_nothing() {
        assert_eq!(CookieMap::default().find(1, &[1]), None);
    }
}
