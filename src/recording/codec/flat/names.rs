//! Names of fields and variants.

use std::collections::HashMap;

/// Names of fields and variants, by number.
#[derive(Clone, Debug, Default)]
pub struct Names {
    list: Vec<String>,
    /// By address first: the names of a type are the same statics every time.
    by_address: HashMap<(usize, usize), u32>,
    by_text: HashMap<String, u32>,
}

impl Names {
    /// Names read from a file.
    pub fn of(list: Vec<String>) -> Self {
        let by_text = list.iter().enumerate().map(|(i, n)| (n.clone(), i as u32)).collect();
        Self { list, by_address: HashMap::new(), by_text }
    }
    pub fn list(&self) -> &[String] {
        &self.list
    }
    pub fn get(&self, n: u64) -> Option<&str> {
        self.list.get(usize::try_from(n).ok()?).map(String::as_str)
    }
    /// Adds a name that a file has at this place.
    pub fn append(&mut self, name: String) {
        self.by_text.insert(name.clone(), self.list.len() as u32);
        self.list.push(name);
    }
    pub(super) fn number(&mut self, name: &'static str) -> u64 {
        let address = (name.as_ptr() as usize, name.len());
        if let Some(n) = self.by_address.get(&address) {
            return u64::from(*n);
        }
        let known = self.by_text.get(name).copied();
        let n = known.unwrap_or_else(|| {
            self.append(name.to_owned());
            self.list.len() as u32 - 1
        });
        self.by_address.insert(address, n);
        u64::from(n)
    }
}
