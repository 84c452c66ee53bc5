//! Reading CBOR into an object tree, without recursion.

use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use base64::Engine;
use smol_str::SmolStr;

use super::CborError;
use crate::hex;
use crate::time::Timestamp;
use crate::value::{Map, Value, MAX_DEPTH};

/// The object tree of one document; trailing data is an error.
pub fn decode(bytes: &[u8]) -> Result<Value, CborError> {
    let (value, used) = decode_first(bytes)?;
    match used == bytes.len() {
        true => Ok(value),
        false => Err(CborError::Trailing(used)),
    }
}

/// The first item of a sequence (`application/cbor-seq`) and how many bytes it took. `UnexpectedEnd` means
/// that it is incomplete.
pub fn decode_first(bytes: &[u8]) -> Result<(Value, usize), CborError> {
    let mut reader = Reader { bytes, at: 0 };
    let value = reader.item()?;
    Ok((value, reader.at))
}

/// The text form that tags 21 to 23 ask for the byte strings within.
#[derive(Clone, Copy, PartialEq)]
enum LaterEncoding {
    Base64Url,
    Base64,
    Base16,
}

/// A tag around a time.
#[derive(Clone, Copy, PartialEq)]
enum TimeTag {
    Text,
    Epoch,
}

/// Capacity reserved for a container's items: enough for most, little for a forged length.
const LIKELY: u64 = 32;

enum Container {
    Array(Vec<Value>),
    Map { members: Vec<(SmolStr, Value)>, key: Option<SmolStr> },
}

struct Frame {
    container: Container,
    /// Items still to come; `None` until a break.
    left: Option<u64>,
    /// The expected encoding within the container.
    later: Option<LaterEncoding>,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Major type, the five low bits, and the argument; `None` for an indefinite length or a break.
type Head = (u8, u8, Option<u64>);

/// The tags in front of an item.
struct Tags {
    count: usize,
    time: Option<TimeTag>,
    later: Option<LaterEncoding>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: u64) -> Result<&'a [u8], CborError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = usize::try_from(len).map_err(|_| CborError::UnexpectedEnd)?;
        let taken = rest.get(..len).ok_or(CborError::UnexpectedEnd)?;
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CborError> {
        let taken = self.take(N as u64)?;
        taken.try_into().map_err(|_| CborError::UnexpectedEnd)
    }

    fn head(&mut self) -> Result<Head, CborError> {
        let start = self.at;
        let [first] = self.array()?;
        let (major, low) = (first >> 5, first & 0x1f);
        let argument = match low {
            0..24 => low as u64,
            24 => u8::from_be_bytes(self.array()?) as u64,
            25 => u16::from_be_bytes(self.array()?) as u64,
            26 => u32::from_be_bytes(self.array()?) as u64,
            27 => u64::from_be_bytes(self.array()?),
            31 if matches!(major, 2..=5 | 7) => return Ok((major, low, None)),
            _ => return Err(CborError::Malformed(start)),
        };
        Ok((major, low, Some(argument)))
    }

    /// The bytes of a string, its chunks put together if the length is indefinite.
    fn string(&mut self, major: u8, len: Option<u64>) -> Result<std::borrow::Cow<'a, [u8]>, CborError> {
        if let Some(len) = len {
            return Ok(self.take(len)?.into());
        }
        let mut whole = Vec::new();
        loop {
            let start = self.at;
            match self.head()? {
                (7, 31, None) => return Ok(whole.into()),
                (chunk, _, Some(len)) if chunk == major => {
                    let chunk = self.take(len)?;
                    // Text is validated chunk by chunk: each must be complete.
                    if major == 3 && std::str::from_utf8(chunk).is_err() {
                        return Err(CborError::Utf8(start));
                    }
                    whole.extend_from_slice(chunk);
                }
                _ => return Err(CborError::Malformed(start)),
            }
        }
    }

    /// Reads one item with all that is in it.
    fn item(&mut self) -> Result<Value, CborError> {
        let mut frames: Vec<Frame> = Vec::new();
        loop {
            let start = self.at;
            let inherited = frames.last().and_then(|frame| frame.later);
            let mut tags = Tags { count: 0, time: None, later: inherited };
            let head = self.untagged_head(&mut tags, frames.len())?;
            if tags.time.is_some() && matches!(head.0, 4 | 5) {
                return Err(CborError::Time(start));
            }
            let Some(value) = self.value(head, &tags, &mut frames, start)? else { continue };
            let mut value = match tags.time {
                Some(tag) => time_value(tag, value).ok_or(CborError::Time(start))?,
                None => value,
            };
            // Add the value to its container; a container that it completes is the next value.
            loop {
                let Some(frame) = frames.last_mut() else { return Ok(value) };
                frame.put(value, start)?;
                match close(&mut frames)? {
                    None => break,
                    Some(complete) => value = complete,
                }
            }
        }
    }

    /// Reads the tags in front of an item, and its head.
    fn untagged_head(&mut self, tags: &mut Tags, depth: usize) -> Result<Head, CborError> {
        loop {
            let start = self.at;
            let tag = match self.head()? {
                (6, _, Some(tag)) => tag,
                head => return Ok(head),
            };
            tags.count += 1;
            if tags.count + depth > MAX_DEPTH {
                return Err(CborError::TooDeep);
            }
            match tag {
                0 => tags.time = Some(TimeTag::Text),
                1 => tags.time = Some(TimeTag::Epoch),
                2 | 3 => return Err(CborError::Bignum(start)),
                21 => tags.later = Some(LaterEncoding::Base64Url),
                22 => tags.later = Some(LaterEncoding::Base64),
                23 => tags.later = Some(LaterEncoding::Base16),
                _ => {}
            }
        }
    }

    /// The value that the item completes: a scalar, an empty container, or one that a break ends. `None`
    /// where the item begins a container.
    fn value(
        &mut self,
        (major, low, argument): Head,
        tags: &Tags,
        frames: &mut Vec<Frame>,
        start: usize,
    ) -> Result<Option<Value>, CborError> {
        let value = match (major, argument) {
            (0, Some(n)) => Value::Int(i64::try_from(n).map_err(|_| CborError::Overflow(start))?),
            (1, Some(n)) => Value::Int(!i64::try_from(n).map_err(|_| CborError::Overflow(start))?),
            (2, len) => {
                let bytes = self.string(2, len)?;
                match tags.later {
                    None => text(&bytes, start)?,
                    Some(LaterEncoding::Base64Url) => URL_SAFE_NO_PAD.encode(&bytes).into(),
                    Some(LaterEncoding::Base64) => STANDARD.encode(&bytes).into(),
                    Some(LaterEncoding::Base16) => hex::lower(&bytes).into(),
                }
            }
            (3, len) => text(&self.string(3, len)?, start)?,
            (4 | 5, len) => return self.open(major, len, tags.later, frames),
            (7, Some(bits)) => match low {
                20 => Value::Bool(false),
                21 => Value::Bool(true),
                22 => Value::Null,
                25 => float(from_half(bits as u16), start)?,
                26 => float(f32::from_bits(bits as u32).into(), start)?,
                27 => float(f64::from_bits(bits), start)?,
                _ => return Err(CborError::Simple(start)),
            },
            (7, None) if tags.count == 0 => return end_indefinite(frames, start).map(Some),
            _ => return Err(CborError::Malformed(start)),
        };
        Ok(Some(value))
    }

    /// Begins an array or a map; returns it if it is empty.
    fn open(
        &mut self,
        major: u8,
        len: Option<u64>,
        later: Option<LaterEncoding>,
        frames: &mut Vec<Frame>,
    ) -> Result<Option<Value>, CborError> {
        if frames.len() >= MAX_DEPTH {
            return Err(CborError::TooDeep);
        }
        // A claimed length is trusted only as far as there are bytes for it.
        let room = (self.bytes.len() - self.at) as u64;
        let items = match (major, len) {
            (_, None) => None,
            (4, Some(n)) if n <= room => Some(n),
            (5, Some(n)) if n <= room / 2 => Some(n * 2),
            _ => return Err(CborError::UnexpectedEnd),
        };
        let likely = items.map_or(0, |n| n.min(LIKELY) as usize);
        let container = match major {
            4 => Container::Array(Vec::with_capacity(likely)),
            _ => Container::Map { members: Vec::with_capacity(likely.div_ceil(2)), key: None },
        };
        frames.push(Frame { container, left: items, later });
        close(frames)
    }
}

/// Ends the innermost container at a break, if that has an indefinite length and no key without a value.
fn end_indefinite(frames: &mut Vec<Frame>, start: usize) -> Result<Value, CborError> {
    match frames.last_mut() {
        Some(Frame { left: left @ None, container, .. })
            if !matches!(container, Container::Map { key: Some(_), .. }) =>
        {
            *left = Some(0);
        }
        _ => return Err(CborError::Malformed(start)),
    }
    close(frames)?.ok_or(CborError::Malformed(start))
}

impl Frame {
    fn put(&mut self, value: Value, at: usize) -> Result<(), CborError> {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
        }
        match &mut self.container {
            Container::Array(elements) => elements.push(value),
            Container::Map { members, key } => match key.take() {
                Some(key) => members.push((key, value)),
                None => match value {
                    Value::String(text) => *key = Some(text),
                    _ => return Err(CborError::Key(at)),
                },
            },
        }
        Ok(())
    }
}

/// Pops the innermost container if it is complete.
fn close(frames: &mut Vec<Frame>) -> Result<Option<Value>, CborError> {
    if frames.last().is_none_or(|f| f.left != Some(0)) {
        return Ok(None);
    }
    match frames.pop().map(|f| f.container) {
        None => Ok(None),
        Some(Container::Array(elements)) => Ok(Some(Value::Array(elements))),
        Some(Container::Map { members, .. }) => {
            let (map, duplicates) = Map::from_members(members);
            match duplicates.first() {
                None => Ok(Some(Value::Object(map))),
                Some(key) => Err(CborError::DuplicateKey(key.to_string())),
            }
        }
    }
}

fn text(bytes: &[u8], at: usize) -> Result<Value, CborError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Value::String(SmolStr::new(text))),
        Err(_) => Err(CborError::Utf8(at)),
    }
}

fn float(x: f64, at: usize) -> Result<Value, CborError> {
    match x.is_finite() {
        true => Ok(Value::Float(x)),
        false => Err(CborError::NotFinite(at)),
    }
}

fn from_half(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff);
    let magnitude = match bits >> 10 & 0x1f {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (fraction + 1024.0) * 2f64.powi(exponent as i32 - 25),
    };
    if bits & 0x8000 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// A tagged time as RFC 3339 text; `null` is kept.
fn time_value(tag: TimeTag, value: Value) -> Option<Value> {
    // The range of RFC 3339, the years 1 to 9999.
    const YEARS: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;
    match (tag, value) {
        (_, Value::Null) => Some(Value::Null),
        (TimeTag::Text, Value::String(text)) => {
            Timestamp::parse(&text).ok()?;
            Some(Value::String(text))
        }
        (TimeTag::Epoch, Value::Int(seconds)) if YEARS.contains(&seconds) => {
            Some(Timestamp { seconds, nanos: 0 }.to_rfc3339().into())
        }
        (TimeTag::Epoch, Value::Float(x)) if YEARS.contains(&(x.floor() as i64)) => {
            let seconds = x.floor() as i64;
            let nanos = ((x - x.floor()) * 1e9) as u32;
            let whole = Timestamp { seconds, nanos: 0 }.to_rfc3339();
            let fraction = format!(".{nanos:09}");
            let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
            Some(format!("{}{fraction}Z", whole.trim_end_matches('Z')).into())
        }
        _ => None,
    }
}
