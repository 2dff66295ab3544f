//! The texts of a group, each stored once: names of fields and variants, and the texts of samples.
//! Everywhere else a text is its number here.

use std::collections::HashMap;

#[derive(Clone, Debug, Default)]
pub struct Names {
    list: Vec<String>,
    /// Size, for limits.
    units: usize,
    /// Writer: by address first, because the names of a type are the same statics every time.
    by_address: HashMap<(usize, usize), u32>,
    by_text: HashMap<String, u32>,
}

/// What an empty text takes.
const EACH: usize = 8;

impl Names {
    pub fn list(&self) -> &[String] {
        &self.list
    }
    pub fn get(&self, n: u64) -> Option<&str> {
        self.list.get(usize::try_from(n).ok()?).map(String::as_str)
    }
    pub(super) fn units(&self) -> usize {
        self.units
    }
    /// Adds a text that a file has at this place.
    pub fn append(&mut self, text: String) {
        self.units = self.units.saturating_add(EACH + text.len());
        self.list.push(text);
    }
    /// The number of a text, which it gets if it is new.
    pub(super) fn text(&mut self, text: &str) -> u64 {
        if let Some(n) = self.by_text.get(text) {
            return u64::from(*n);
        }
        let n = self.list.len() as u32;
        self.by_text.insert(text.to_owned(), n);
        self.append(text.to_owned());
        u64::from(n)
    }
    pub(super) fn name(&mut self, name: &'static str) -> u64 {
        let address = (name.as_ptr() as usize, name.len());
        if let Some(n) = self.by_address.get(&address) {
            return u64::from(*n);
        }
        let n = self.text(name);
        self.by_address.insert(address, n as u32);
        n
    }
}
