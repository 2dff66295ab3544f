//! Counters by name, as the files of `/proc/net`, meminfo and vmstat print them: the names
//! are kept and shared between ticks, only the values are new. When a kernel module adds or
//! removes a name, or the order changes, the list is built anew.

use std::sync::Arc;

/// One counter as a parser finds it: group (`TcpExt`, may be empty), name, value.
pub(super) type Found<'a, V> = (&'a [u8], &'a [u8], V);

/// Names in sorted order, and the values in the order of the names.
pub(super) type Sorted<V> = (Arc<Vec<Box<str>>>, Vec<V>);

/// Group, name, the name to show, value.
type Row<'a, V> = (&'a [u8], &'a [u8], Box<str>, V);

/// Group, name, index into the sorted names.
type Entry = (Box<[u8]>, Box<[u8]>, u32);

/// The names of the last reading and the sorted place of each.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    /// In file order.
    entries: Vec<Entry>,
    names: Arc<Vec<Box<str>>>,
}

impl NameTable {
    /// Fills `values` in the order of the returned names from what `walk` finds. `walk` may be
    /// called twice, and must find the same both times. `join` makes the name to show.
    pub(super) fn collect<'a, V: Copy + Default>(
        &mut self,
        walk: impl Fn(&mut dyn FnMut(Found<'a, V>)),
        join: impl Fn(&[u8], &[u8]) -> String,
    ) -> Sorted<V> {
        let mut values = vec![V::default(); self.names.len()];
        let mut seen = 0;
        let mut same = true;
        walk(&mut |(group, name, value)| {
            if !same {
                return;
            }
            match self.entries.get(seen) {
                Some((g, n, at)) if **n == *name && **g == *group => {
                    if let Some(v) = values.get_mut(*at as usize) {
                        *v = value;
                    }
                    seen += 1;
                }
                _ => same = false,
            }
        });
        if same && seen == self.entries.len() {
            return (self.names.clone(), values);
        }
        self.rebuild(&walk, join)
    }

    fn rebuild<'a, V: Copy + Default>(
        &mut self,
        walk: &impl Fn(&mut dyn FnMut(Found<'a, V>)),
        join: impl Fn(&[u8], &[u8]) -> String,
    ) -> Sorted<V> {
        let mut rows: Vec<Row<'_, V>> = Vec::new();
        walk(&mut |(g, n, v)| rows.push((g, n, join(g, n).into_boxed_str(), v)));
        let mut names: Vec<Box<str>> = rows.iter().map(|r| r.2.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let mut values = vec![V::default(); names.len()];
        self.entries.clear();
        for (group, name, shown, value) in rows {
            let Ok(at) = names.binary_search(&shown) else { continue };
            if let Some(v) = values.get_mut(at) {
                *v = value;
            }
            self.entries.push((group.into(), name.into(), at as u32));
        }
        self.names = Arc::new(names);
        (self.names.clone(), values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(t: &mut NameTable, rows: &[(&'static str, u64)]) -> (Arc<Vec<Box<str>>>, Vec<u64>) {
        t.collect(
            |emit| {
                for (n, v) in rows {
                    emit((b"G", n.as_bytes(), *v));
                }
            },
            |g, n| format!("{}{}", String::from_utf8_lossy(g), String::from_utf8_lossy(n)),
        )
    }

    #[test]
    fn names_are_shared_until_they_change() {
        let mut t = NameTable::default();
        let (a, av) = run(&mut t, &[("b", 1), ("a", 2)]);
        let (b, bv) = run(&mut t, &[("b", 3), ("a", 4)]);
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!(a.iter().map(|n| &**n).collect::<Vec<_>>(), ["Ga", "Gb"]);
        assert_eq!((av, bv), (vec![2, 1], vec![4, 3]));
        let (c, cv) = run(&mut t, &[("b", 5)]);
        assert_eq!((c.len(), cv), (1, vec![5]));
        let (d, dv) = run(&mut t, &[("b", 5), ("z", 6)]);
        assert_eq!((d.len(), dv), (2, vec![5, 6]));
    }

    #[test]
    fn the_last_of_two_equal_names_counts() {
        let mut t = NameTable::default();
        for _ in 0..2 {
            let (n, v) = run(&mut t, &[("a", 1), ("a", 2)]);
            assert_eq!((n.len(), v), (1, vec![2]));
        }
    }
}
