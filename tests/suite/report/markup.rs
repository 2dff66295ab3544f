//! A small reader of the HTML that we write: every attribute quoted, every element closed.

use std::fmt::Write as _;

/// Elements that have no end.
const VOID: [&str; 2] = ["meta", "br"];

/// One start of an element.
#[derive(Debug)]
pub struct Element {
    pub name: String,
    pub attributes: Vec<(String, String)>,
}

/// A page, read.
#[derive(Debug, Default)]
pub struct Page {
    pub elements: Vec<Element>,
    /// Its texts, a line for each that is not blank; without the style.
    pub text: String,
}

/// Reads a page; panics where a browser would have to guess.
#[track_caller]
pub fn read(html: &str) -> Page {
    let mut rest = html.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    let (mut page, mut open) = (Page::default(), Vec::<String>::new());
    let mut line = String::new();
    while !rest.is_empty() {
        let Some(inner) = rest.strip_prefix('<') else {
            let end = rest.find('<').unwrap_or(rest.len());
            assert!(!rest[..end].contains('>'), "a bare > in {:?}", &rest[..end]);
            if open.last().is_some_and(|o| o != "style") {
                line.push_str(&unescaped(&rest[..end]));
            }
            rest = &rest[end..];
            continue;
        };
        if let Some(closing) = inner.strip_prefix('/') {
            let (name, after) = closing.split_once('>').expect("an end of an end");
            assert_eq!(open.pop().as_deref(), Some(name), "closed in another order");
            if is_block(name) && !line.trim().is_empty() {
                writeln!(page.text, "{}", line.split_whitespace().collect::<Vec<_>>().join(" "))
                    .unwrap();
            }
            if is_block(name) {
                line.clear();
            } else if name == "svg" || name == "text" {
                line.push(' ');
            }
            rest = after;
            continue;
        }
        let (element, after) = element(inner);
        if is_block(&element.name) && !line.trim().is_empty() {
            writeln!(page.text, "{}", line.split_whitespace().collect::<Vec<_>>().join(" "))
                .unwrap();
            line.clear();
        }
        if matches!(element.name.as_str(), "td" | "th" | "dd") {
            line.push_str(" | ");
        }
        if !VOID.contains(&element.name.as_str()) {
            open.push(element.name.clone());
        }
        page.elements.push(element);
        rest = after;
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    page
}

fn is_block(name: &str) -> bool {
    let all = "title style h1 h2 h3 h4 p tr li pre figure figcaption summary details section article \
               header main body head html div ul table thead tbody dl";
    all.split_whitespace().any(|b| b == name)
}

/// What follows a `<`: name, attributes, and what is behind the `>`.
fn element(inner: &str) -> (Element, &str) {
    let end = inner.find([' ', '>']).expect("an end of an element");
    let name = inner[..end].to_owned();
    assert!(!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()), "{name:?}");
    let (mut attributes, mut rest) = (Vec::new(), &inner[end..]);
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('>') {
            return (Element { name, attributes }, after);
        }
        let end = rest.find(['=', ' ', '>']).expect("an end of an attribute");
        let key = rest[..end].to_owned();
        assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{key:?}");
        rest = &rest[end..];
        let mut value = "";
        if let Some(quoted) = rest.strip_prefix("=\"") {
            (value, rest) = quoted.split_once('"').expect("an end of a value");
        } else {
            assert!(!rest.starts_with('='), "{key} without quotes");
        }
        assert!(!value.contains('<'), "{key}={value}");
        attributes.push((key, unescaped(value)));
    }
}

fn unescaped(text: &str) -> String {
    for part in text.split('&').skip(1) {
        let known = ["lt;", "gt;", "amp;", "quot;"];
        assert!(known.iter().any(|k| part.starts_with(k)), "a bare & before {part:?}");
    }
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    text.replace("&amp;", "&")
}
