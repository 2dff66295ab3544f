//! Reads `events/*/*/format` of tracefs: where the fields of a classic tracepoint's record
//! lie. Used on kernels without BTF, where records are all there is.

/// One field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, without the length of an array.
    pub name: String,
    /// Offset from the start of the record, bytes.
    pub offset: u32,
    /// Size, bytes.
    pub size: u32,
}

/// A parsed `format` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// All fields, the common ones too.
    pub fields: Vec<Field>,
    /// The `print fmt:` line, raw.
    pub print: String,
}

/// Fields that are kept at most.
const MAX_FIELDS: usize = 256;

impl Format {
    /// Parses the file; lines that are no fields are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut out = Self::default();
        for line in text.lines() {
            if let Some(print) = line.strip_prefix("print fmt:") {
                print.trim().clone_into(&mut out.print);
            } else if out.fields.len() < MAX_FIELDS
                && let Some(field) = parse_field(line)
            {
                out.fields.push(field);
            }
        }
        out
    }

    /// A field of exactly this size.
    #[must_use]
    pub fn field(&self, name: &str, size: u32) -> Option<u32> {
        self.fields.iter().find(|f| f.name == name && f.size == size).map(|f| f.offset)
    }

    /// The bit of `prev_state` in `sched_switch` that marks a preempted task. The kernel
    /// prints a `+` for it: `prev_state & (((0x1 | 0x2 | ..) + 1) << 1) ? "+"`.
    #[must_use]
    pub fn preempted_bit(&self) -> Option<u32> {
        let before = self.print.split("? \"+\"").next().filter(|b| b.len() < self.print.len())?;
        let expression = before.rsplit("prev_state &").next()?;
        let mut mask = 0u32;
        for part in expression.split("0x").skip(1) {
            let digits: String = part.chars().take_while(char::is_ascii_hexdigit).collect();
            mask |= u32::from_str_radix(&digits, 16).ok()?;
        }
        let squeezed: String = expression.chars().filter(|c| !c.is_whitespace()).collect();
        if squeezed.contains("+1") {
            mask = mask.checked_add(1)?;
        }
        if squeezed.contains("<<1") {
            mask = mask.checked_mul(2)?;
        }
        mask.is_power_of_two().then_some(mask)
    }
}

fn parse_field(line: &str) -> Option<Field> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let name = declaration.rsplit([' ', '\t', '*']).next()?.split('[').next()?;
    let mut field = Field { name: name.to_owned(), offset: 0, size: 0 };
    let (mut offset, mut size) = (None, None);
    for part in parts {
        if let Some(v) = part.strip_prefix("offset:") {
            offset = v.parse().ok();
        } else if let Some(v) = part.strip_prefix("size:") {
            size = v.parse().ok();
        }
    }
    field.offset = offset?;
    field.size = size?;
    (!field.name.is_empty()).then_some(field)
}

#[cfg(test)]
mod tests;
