//! Upstream's cache for Python: its own code behind the thinnest binding there is.
//!
//! The text is borrowed from the `str` (no copy where Python holds it as UTF-8 already)
//! and the ids come back as one `bytes` object of native `u32`: no Python int is made.

use std::str::FromStr;
use std::sync::Arc;

use dynamo_tokenizers::HuggingFaceTokenizer;
use dynamo_tokenizers::cache::CachedTokenizer;
use dynamo_tokenizers::traits::{Encoder, Tokenizer as _};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokenizers::Tokenizer;

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn as_bytes<'py>(py: Python<'py>, ids: &[u32]) -> Bound<'py, PyBytes> {
    // SAFETY: any four initialised bytes make a u32 and the other way round.
    let raw = unsafe { std::slice::from_raw_parts(ids.as_ptr().cast::<u8>(), 4 * ids.len()) };
    PyBytes::new(py, raw)
}

/// Upstream's `CachedTokenizer` over a `tokenizer.json`.
#[pyclass(frozen)]
struct Upstream {
    cached: CachedTokenizer,
}

#[pymethods]
impl Upstream {
    #[new]
    fn new(json: &str, special_tokens: Vec<String>, max_memory_bytes: usize) -> PyResult<Self> {
        let inner = Tokenizer::from_str(json).map_err(refused)?;
        let inner = Arc::new(HuggingFaceTokenizer::from_tokenizer(inner));
        let cached = CachedTokenizer::new(inner, special_tokens, max_memory_bytes)
            .map_err(refused)?
            .with_extend(true);
        Ok(Self { cached })
    }

    /// Return the ids as native `u32` in a `bytes` object.
    fn encode<'py>(&self, py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyBytes>> {
        let encoding = self.cached.encode(text).map_err(refused)?;
        Ok(as_bytes(py, encoding.token_ids()))
    }

    /// Return the ids as the tokenizer inside has them, without the cache.
    fn encode_raw<'py>(&self, py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyBytes>> {
        let encoding = self.cached.inner().encode(text).map_err(refused)?;
        Ok(as_bytes(py, encoding.token_ids()))
    }

    /// Return hits, misses, entries and bytes, as upstream counts them.
    fn stats(&self) -> (u64, u64, usize, usize) {
        let stats = self.cached.cache_stats();
        (stats.hits, stats.misses, stats.entries, stats.memory_bytes)
    }

    /// Drop what is cached and reset the counters.
    fn clear(&self) {
        self.cached.clear_cache();
    }
}

#[pymodule]
fn tokcache_bench_upstream(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // The version that Cargo.toml pins.
    module.add("VERSION", "1.9.1")?;
    module.add_class::<Upstream>()
}
