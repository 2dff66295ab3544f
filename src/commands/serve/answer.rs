//! From a request to its answer. Nothing of a request is used but its method, its path, and the two
//! headers `Accept` and `Authorization`; a body is not read.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::latest::Latest;
use crate::openmetrics::Format;

const TEXT: &str = "text/plain; charset=utf-8";
const INDEX: &str = "stallscope: where the work on this machine is stuck.\n\n/metrics  the last \
    sample for Prometheus; `stallscope help metrics` explains it\n";

/// The answer.
pub(super) fn answer(request: &Parts, latest: &Latest) -> Response<Full<Bytes>> {
    if !latest.token().is_none_or(|t| bearer(&request.headers).is_some_and(|sent| t.is(sent))) {
        let mut refusal = text(StatusCode::UNAUTHORIZED, "Authorization: Bearer TOKEN expected\n");
        put(&mut refusal, WWW_AUTHENTICATE, "Bearer realm=\"stallscope\"");
        return refusal;
    }
    let path = request.uri.path();
    if !matches!(path, "/" | "/metrics") {
        return text(StatusCode::NOT_FOUND, "not found; try /metrics\n");
    }
    if !matches!(request.method, Method::GET | Method::HEAD) {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        put(&mut refusal, ALLOW, "GET, HEAD");
        return refusal;
    }
    if path == "/" {
        return text(StatusCode::OK, INDEX);
    }
    let format = wanted(&request.headers);
    let Some(page) = latest.page(format) else {
        let mut later = text(StatusCode::SERVICE_UNAVAILABLE, "no sample yet; try again\n");
        put(&mut later, RETRY_AFTER, "1");
        return later;
    };
    let mut out = Response::new(Full::new(page));
    put(&mut out, CONTENT_TYPE, format.content_type());
    out
}

fn text(status: StatusCode, line: &'static str) -> Response<Full<Bytes>> {
    let mut out = Response::new(Full::new(Bytes::from_static(line.as_bytes())));
    *out.status_mut() = status;
    put(&mut out, CONTENT_TYPE, TEXT);
    out
}

fn put(to: &mut Response<Full<Bytes>>, name: hyper::header::HeaderName, value: &'static str) {
    to.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// The token of the one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(header), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = header.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// The older format, unless OpenMetrics is asked for and not liked less.
fn wanted(headers: &HeaderMap) -> Format {
    let (mut open, mut plain) = (0.0_f32, 0.0_f32);
    let ranges = headers.get_all(ACCEPT).iter().filter_map(|h| h.to_str().ok());
    for range in ranges.flat_map(|h| h.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut weight, mut known) = (1.0_f32, true);
        for (name, value) in parts.filter_map(|p| p.split_once('=')) {
            match (&*name.trim().to_ascii_lowercase(), value.trim()) {
                ("q", value) => weight = value.parse().unwrap_or(0.0),
                // Both are what is written for version 1.0.0.
                ("version", value) if media == "application/openmetrics-text" => {
                    known = matches!(value.trim_matches('"'), "1.0.0" | "0.0.1");
                }
                _ => {}
            }
        }
        match &*media {
            "application/openmetrics-text" if known => open = open.max(weight),
            "text/plain" => plain = plain.max(weight),
            _ => {}
        }
    }
    if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::super::token::Token;
    use super::*;
    use crate::sample::tick::{HostInfo, Tick};
    use crate::sample::time::Seq;

    fn headers(name: hyper::header::HeaderName, values: &[&str]) -> HeaderMap {
        let values = values.iter().map(|v| (name.clone(), HeaderValue::from_str(v).unwrap()));
        values.fold(HeaderMap::new(), |mut all, (name, value)| {
            all.append(name, value);
            all
        })
    }

    /// The status of the answer to a request, and one of its headers.
    fn answered(latest: &Latest, line: &str, header: hyper::header::HeaderName) -> (u16, String) {
        let (method, path) = line.split_once(' ').unwrap();
        let request = hyper::Request::builder().method(method).uri(path).body(()).unwrap();
        let got = answer(&request.into_parts().0, latest);
        let value = got.headers().get(header).map(|v| v.to_str().unwrap().to_owned());
        (got.status().as_u16(), value.unwrap_or_default())
    }

    fn latest(token: Option<&str>) -> Latest {
        let interest = tokio::sync::watch::Sender::default();
        let token = token.map(|t| Token::new(t.as_bytes()).unwrap());
        Latest::new(HostInfo::default(), interest, token)
    }

    #[test]
    fn before_the_first_sample_a_scraper_is_told_to_come_back() {
        let latest = latest(None);
        assert_eq!(answered(&latest, "GET /metrics", RETRY_AFTER), (503, "1".to_owned()));
        assert_eq!(answered(&latest, "GET /", CONTENT_TYPE), (200, TEXT.to_owned()));
        latest.push(Arc::new(Tick::default()));
        let plain = Format::Prometheus.content_type().to_owned();
        assert_eq!(answered(&latest, "GET /metrics", CONTENT_TYPE), (200, plain));
    }

    #[test]
    fn a_page_is_made_once_for_each_sample_and_only_when_it_is_asked_for() {
        let latest = latest(None);
        latest.push(Arc::new(Tick::default()));
        let at = |format| latest.page(format).unwrap().as_ptr();
        let first = at(Format::OpenMetrics);
        assert_eq!(at(Format::OpenMetrics), first, "the same bytes");
        assert_ne!(at(Format::Prometheus), first);
        let held = latest.page(Format::OpenMetrics);
        latest.push(Arc::new(Tick { seq: Seq(1), ..Tick::default() }));
        assert_ne!(latest.page(Format::OpenMetrics), held, "the next sample");
    }

    #[test]
    fn what_is_not_there_is_not_found_and_what_is_forbidden_says_so() {
        let without = latest(None);
        assert_eq!(answered(&without, "GET /x", CONTENT_TYPE), (404, TEXT.to_owned()));
        assert_eq!(answered(&without, "POST /x", CONTENT_TYPE), (404, TEXT.to_owned()));
        assert_eq!(answered(&without, "POST /", ALLOW), (405, "GET, HEAD".to_owned()));
        let with = latest(Some("s3cret"));
        let asks = "Bearer realm=\"stallscope\"".to_owned();
        for line in ["GET /metrics", "POST /metrics", "GET /", "GET /x"] {
            assert_eq!(answered(&with, line, WWW_AUTHENTICATE), (401, asks.clone()), "{line}");
        }
    }

    #[test]
    fn a_scraper_gets_what_it_asks_for() {
        let of = |accept: &[&str]| wanted(&headers(ACCEPT, accept));
        for accept in [
            // Prometheus 2.42, 2.53 and 3.1.
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
             version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
             version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
            "Application/OpenMetrics-Text; Version=\"1.0.0\"",
            "application/openmetrics-text",
        ] {
            assert_eq!(of(&[accept]), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "text/plain;version=0.0.4",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=0.2,text/plain;q=0.9",
            "application/openmetrics-text;q=nonsense",
        ] {
            assert_eq!(of(&[accept]), Format::Prometheus, "{accept}");
        }
        assert_eq!(of(&[]), Format::Prometheus);
        assert_eq!(of(&["text/plain;q=0.1", "application/openmetrics-text"]), Format::OpenMetrics);
    }

    #[test]
    fn a_token_comes_in_one_header() {
        let of = |values: &[&str]| bearer(&headers(AUTHORIZATION, values)).map(<[u8]>::to_vec);
        assert_eq!(of(&["Bearer abc"]), Some(b"abc".to_vec()));
        assert_eq!(of(&["bearer  abc "]), Some(b"abc".to_vec()));
        assert_eq!(of(&["Bearer "]), Some(Vec::new()), "an empty one is none of ours");
        for wrong in [&[][..], &["Basic abc"], &["Bearer"], &["Bearer a", "Bearer b"], &["é"]] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }
}
