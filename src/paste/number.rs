//! Numbers as tools and locales write them.

/// A number that is not negative: `12.5`, `12,5`, `1.234,5`, `1'234.5`, `99.5%`. `None` for
/// anything else, for what is not finite and for what no counter reaches.
pub(super) fn float(text: &str) -> Option<f64> {
    let text = text.strip_suffix('%').unwrap_or(text);
    let first = *text.as_bytes().first()?;
    if !(first.is_ascii_digit() || matches!(first, b'.' | b',')) {
        return None;
    }
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value = if plain { text.parse().ok()? } else { localized(text)? };
    (0.0..1e18).contains(&value).then_some(value)
}

/// The last of comma and dot is the decimal sign, unless it occurs twice.
fn localized(text: &str) -> Option<f64> {
    let ok = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b',' | b'\'');
    if text.len() > 40 || !text.bytes().all(ok) {
        return None;
    }
    let last = text.rfind(['.', ',']);
    let twice =
        last.is_some_and(|at| text.get(at..=at).is_some_and(|sign| text.matches(sign).count() > 1));
    let mut out = String::with_capacity(text.len());
    for (i, c) in text.char_indices() {
        if c.is_ascii_digit() {
            out.push(c);
        } else if Some(i) == last && !twice && c != '\'' {
            out.push('.');
        }
    }
    out.parse().ok()
}

/// [`float`] with a suffix of `iostat --human`: `k` is `kilo`, `M` a thousand-and-twenty-four
/// times that, `B` its part.
pub(super) fn human(text: &str, kilo: f64) -> Option<f64> {
    let text = text.strip_suffix('%').unwrap_or(text);
    let (number, scale) = match text.as_bytes().last()? {
        b'k' | b'K' => (text.get(..text.len() - 1)?, kilo),
        b'M' => (text.get(..text.len() - 1)?, kilo * 1024.0),
        b'G' => (text.get(..text.len() - 1)?, kilo * 1024.0 * 1024.0),
        b'B' => (text.get(..text.len() - 1)?, kilo / 1024.0),
        _ => (text, 1.0),
    };
    Some(float(number)? * scale)
}

/// Digits only.
pub(super) fn uint(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// The time in `timer:(...)`, in ms: `560ms`, `1.060ms` (1.060 s: before July 2024 ss wrote the
/// wrong unit after seconds with a fraction), `5.660s`, `12sec`, `1min12sec`, `2min`.
pub(super) fn timer_ms(text: &str) -> Option<u32> {
    let (minutes, rest) = match text.split_once("min") {
        Some((m, rest)) => (uint(m)?, rest),
        None => (0, text),
    };
    let seconds = if rest.is_empty() {
        0.0
    } else if let Some(ms) = rest.strip_suffix("ms") {
        let value = float(ms)?;
        if ms.contains(['.', ',']) { value } else { value / 1000.0 }
    } else {
        float(rest.strip_suffix("sec").or_else(|| rest.strip_suffix('s'))?)?
    };
    let ms = minutes as f64 * 60_000.0 + seconds * 1000.0;
    (ms <= f64::from(u32::MAX)).then(|| ms.round() as u32)
}

/// Bits per second as any ss wrote them: `133.3Kbps`, `133k`, `133kbps`, `1.2Gbps`, `133300`,
/// `133300bps`.
pub(super) fn bps(text: &str) -> Option<f64> {
    let text = text.strip_suffix("bps").unwrap_or(text);
    let (number, scale) = match text.as_bytes().last()? {
        b'k' | b'K' => (text.get(..text.len() - 1)?, 1e3),
        b'm' | b'M' => (text.get(..text.len() - 1)?, 1e6),
        b'g' | b'G' => (text.get(..text.len() - 1)?, 1e9),
        b't' | b'T' => (text.get(..text.len() - 1)?, 1e12),
        _ => (text, 1.0),
    };
    // %.3g may give an exponent.
    let value = match number.split_once('e') {
        Some((m, e)) => {
            float(m)? * 10f64.powi(e.trim_start_matches('+').parse::<u8>().ok()?.into())
        }
        None => float(number)?,
    };
    Some(value * scale).filter(|v| v.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locales() {
        assert_eq!(float("7.55"), Some(7.55));
        assert_eq!(float("7,55"), Some(7.55));
        assert_eq!(float("1.234,5"), Some(1234.5));
        assert_eq!(float("1,234.5"), Some(1234.5));
        assert_eq!(float("1'234.5"), Some(1234.5));
        assert_eq!(float("1,234,567"), Some(1_234_567.0));
        assert_eq!(float("99,95%"), Some(99.95));
        assert_eq!(float(".5"), Some(0.5));
        for bad in [
            "",
            "-1",
            "x",
            "1x",
            "nan",
            "inf",
            "1e9",
            ".",
            ",",
            "%",
            "1..2.3x",
            "9".repeat(30).as_str(),
        ] {
            assert_eq!(float(bad), None, "{bad}");
        }
        assert_eq!(human("1.5M", 1.0), Some(1536.0));
        assert_eq!(human("1.5k", 1000.0), Some(1500.0));
        assert_eq!(human("512B", 1.0), Some(0.5));
    }

    /// 1060 ms were printed as `1.060ms` before iproute2 of July 2024, and as `1.060s` after.
    #[test]
    fn timers_of_old_and_new_ss() {
        let cases = [
            ("1.060ms", 1060),
            ("1.060s", 1060),
            ("560ms", 560),
            ("063ms", 63),
            ("12sec", 12_000),
            ("5s", 5000),
            ("1min12sec", 72_000),
            ("14min", 840_000),
        ];
        for (text, ms) in cases {
            assert_eq!(timer_ms(text), Some(ms), "{text}");
        }
        for bad in ["", "ms", "min", "1.2.3ms", "x", "99999999999999min"] {
            assert!(timer_ms(bad).is_none() || bad.is_empty(), "{bad}");
        }
    }

    #[test]
    fn rates_of_old_and_new_ss() {
        for text in ["133.3Kbps", "133.3k", "133300bps", "133300", "1.333e+05bps"] {
            assert_eq!(bps(text).map(f64::round), Some(133_300.0), "{text}");
        }
        assert_eq!(bps("1.2Gbps"), Some(1.2e9));
        assert_eq!(bps("bps"), None);
    }
}
