//! `resource.Quantity`: a fixed-point number with an SI or binary suffix, and its canonical form.
//!
//! The rules are those of k8s.io/apimachinery `pkg/api/resource`: a value has at most nine decimal places
//! (smaller parts are rounded away from zero), binary amounts are capped at 2^63-1, and the canonical form
//! has no fraction, the largest possible suffix and the format in which the value was written. Text that
//! upstream's fast path accepts as canonical is kept unchanged, even where it is not (`+1`, `1.500`).
//!
//! ```
//! use plinth_codec::quantity::Quantity;
//! let half = Quantity::parse("0.5").unwrap();
//! assert_eq!(half.canonical(), "500m");
//! assert_eq!(Quantity::parse("1024Ki").unwrap().canonical(), "1Mi");
//! assert!(half < Quantity::parse("1Ki").unwrap());
//! ```

use std::cmp::Ordering;

use smol_str::{format_smolstr, SmolStr};

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number cannot be parsed; here also for more than 38 significant digits.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// No such suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The format of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityFormat {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySI,
    /// `12M`
    DecimalSI,
}

/// A number `mantissa * 10^exponent` and the format in which it was written.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    mantissa: i128,
    exponent: i32,
    format: QuantityFormat,
}

const NANO: i32 = -9;
const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The parts of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; `0` when there are none.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let rest = rest.trim_start_matches('0');
    if rest.is_empty() {
        return Ok(Parts { negative, whole: "0", fraction: "", suffix: "" });
    }
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = rest.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
    let exponent = &rest[letters..];
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if digits(exponent) != exponent.len() {
        return Err(QuantityError::Format);
    }
    Ok(Parts { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix: rest })
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// The meaning of a suffix: a power of ten, or of two when the format is binary.
fn suffix(text: &str) -> Result<(i32, QuantityFormat), QuantityError> {
    if let Some(&(_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == text) {
        return Ok((exponent, QuantityFormat::DecimalSI));
    }
    if let Some(power) = BINARY_SUFFIXES.iter().position(|name| *name == text) {
        return Ok((power as i32 * 10, QuantityFormat::BinarySI));
    }
    match text.strip_prefix(['e', 'E']) {
        // Upstream truncates larger exponents to 32 bits, which changes the number.
        Some(exponent) if !exponent.is_empty() => {
            exponent.parse().map(|e| (e, QuantityFormat::DecimalExponent)).map_err(|_| QuantityError::Suffix)
        }
        _ => Err(QuantityError::Suffix),
    }
}

impl Quantity {
    /// Reads a quantity; no spaces around it.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = split(text)?;
        let (power, format) = suffix(parts.suffix)?;
        Quantity::from_parts(&parts, power, format)
    }

    fn from_parts(
        parts: &Parts<'_>,
        power: i32,
        mut format: QuantityFormat,
    ) -> Result<Quantity, QuantityError> {
        // Zeros at either end are not significant.
        let fraction = parts.fraction.trim_end_matches('0');
        let mut mantissa: i128 = 0;
        for digit in parts.whole.bytes().chain(fraction.bytes()) {
            let shifted = mantissa.checked_mul(10).and_then(|m| m.checked_add(i128::from(digit - b'0')));
            mantissa = shifted.ok_or(QuantityError::Numeric)?;
        }
        let mut exponent = i32::try_from(fraction.len()).map_err(|_| QuantityError::Numeric)?.wrapping_neg();
        match format {
            QuantityFormat::BinarySI => {
                mantissa = mantissa.checked_mul(1 << power).ok_or(QuantityError::Numeric)?;
            }
            _ => exponent = exponent.checked_add(power).ok_or(QuantityError::Numeric)?,
        }
        if exponent < NANO {
            mantissa = divide_up(mantissa, NANO.abs_diff(exponent));
            exponent = NANO;
        }
        let mut value = Quantity { mantissa, exponent, format };
        if format == QuantityFormat::BinarySI {
            let most = Quantity { mantissa: i128::from(i64::MAX), exponent: 0, format };
            let one = Quantity { mantissa: 1, exponent: 0, format };
            if value > most {
                value = most;
            }
            if mantissa > 0 && value < one {
                format = QuantityFormat::DecimalSI;
            }
        }
        if parts.negative {
            value.mantissa = -value.mantissa;
        }
        value.format = format;
        Ok(value)
    }

    /// The canonical form of a quantity's text, as in upstream's JSON.
    pub fn canonicalize(text: &str) -> Result<SmolStr, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = split(text)?;
        let (power, format) = suffix(parts.suffix)?;
        if is_canonical_as_is(&parts, power, format) {
            return Ok(SmolStr::new(text));
        }
        Ok(Quantity::from_parts(&parts, power, format)?.canonical())
    }

    /// The canonical text.
    pub fn canonical(&self) -> SmolStr {
        if self.mantissa == 0 {
            return SmolStr::new_static("0");
        }
        if self.format == QuantityFormat::BinarySI {
            if let Some(whole) = self.whole().filter(|whole| whole.unsigned_abs() >= 1024) {
                let (mut number, mut power) = (whole, 0);
                while number.unsigned_abs() >= 1024 && number % 1024 == 0 && power + 1 < BINARY_SUFFIXES.len()
                {
                    number /= 1024;
                    power += 1;
                }
                return format_smolstr!("{number}{}", BINARY_SUFFIXES[power]);
            }
        }
        let (mut number, mut exponent) = (self.mantissa, self.exponent);
        while number % 10 == 0 {
            number /= 10;
            exponent += 1;
        }
        // Upstream's exponents are multiples of three, and so are the suffixes.
        let zeros = exponent.rem_euclid(3);
        exponent -= zeros;
        let zeros = &"00"[..zeros as usize];
        let suffix = DECIMAL_SUFFIXES.iter().find(|(_, e)| *e == exponent);
        match (self.format, suffix) {
            (_, Some((suffix, 0))) => format_smolstr!("{number}{zeros}{suffix}"),
            (QuantityFormat::DecimalExponent, _) | (_, None) => format_smolstr!("{number}{zeros}e{exponent}"),
            (_, Some((suffix, _))) => format_smolstr!("{number}{zeros}{suffix}"),
        }
    }

    /// The format in which the value was written.
    pub fn format(&self) -> QuantityFormat {
        self.format
    }

    /// The value, if it is a whole number.
    fn whole(&self) -> Option<i128> {
        match u32::try_from(self.exponent) {
            Ok(exponent) => self.mantissa.checked_mul(10i128.checked_pow(exponent)?),
            Err(_) => {
                let divisor = 10i128.checked_pow(self.exponent.unsigned_abs())?;
                (self.mantissa % divisor == 0).then(|| self.mantissa / divisor)
            }
        }
    }

    /// The value in units of `10^scale`, rounded away from zero: `value(0)` of `1500m` is 2, `value(-3)` is
    /// 1500. Saturates.
    pub fn value(&self, scale: i32) -> i64 {
        let shift = i64::from(self.exponent) - i64::from(scale);
        let scaled = match shift {
            0.. => u32::try_from(shift)
                .ok()
                .and_then(|shift| 10i128.checked_pow(shift))
                .and_then(|factor| self.mantissa.checked_mul(factor))
                .unwrap_or(if self.mantissa < 0 {
                    i128::MIN
                } else {
                    i128::from(self.mantissa > 0) * i128::MAX
                }),
            _ => divide_up(self.mantissa, u32::try_from(-shift).unwrap_or(u32::MAX)),
        };
        scaled.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The quantity `0`.
    pub const ZERO: Quantity = Quantity { mantissa: 0, exponent: 0, format: QuantityFormat::DecimalSI };

    /// The quantity `1`.
    pub const ONE: Quantity = Quantity { mantissa: 1, exponent: 0, format: QuantityFormat::DecimalSI };

    /// The sum, in the format of the first unless that is zero. Saturates.
    #[must_use]
    pub fn plus(self, other: Quantity) -> Quantity {
        self.combined(other, i128::saturating_add)
    }

    /// The difference, in the format of the first unless that is zero. Saturates.
    #[must_use]
    pub fn minus(self, other: Quantity) -> Quantity {
        self.combined(other, i128::saturating_sub)
    }

    fn combined(self, other: Quantity, with: impl Fn(i128, i128) -> i128) -> Quantity {
        let exponent = self.exponent.min(other.exponent);
        let scaled = |quantity: Quantity| {
            let factor = 10i128.checked_pow(quantity.exponent.abs_diff(exponent));
            let overflow = if quantity.mantissa < 0 { i128::MIN } else { i128::MAX };
            match quantity.mantissa {
                0 => 0,
                mantissa => factor.and_then(|f| mantissa.checked_mul(f)).unwrap_or(overflow),
            }
        };
        let format = if self.mantissa == 0 { other.format } else { self.format };
        Quantity { mantissa: with(scaled(self), scaled(other)), exponent, format }
    }

    /// The value, if it is a whole number of 64 bits.
    pub fn as_int(&self) -> Option<i64> {
        i64::try_from(self.whole()?).ok()
    }

    /// The approximate value.
    pub fn to_f64(&self) -> f64 {
        self.mantissa as f64 * 10f64.powi(self.exponent)
    }

    /// A whole number.
    pub fn of_int(n: i64) -> Quantity {
        Quantity { mantissa: i128::from(n), exponent: 0, format: QuantityFormat::DecimalSI }
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.mantissa.signum() as i32
    }
}

/// Divides by a power of ten, rounding away from zero.
fn divide_up(value: i128, power: u32) -> i128 {
    match 10i128.checked_pow(power) {
        Some(divisor) => value / divisor + (value % divisor).signum(),
        None => value.signum(),
    }
}

/// Whether upstream takes the text as canonical without looking closer (the fast path of its parser).
fn is_canonical_as_is(parts: &Parts<'_>, power: i32, format: QuantityFormat) -> bool {
    let (whole, fraction) = (parts.whole, parts.fraction);
    let length = whole.len() + fraction.len();
    match format {
        QuantityFormat::BinarySI => {
            let estimate = 15 - whole.len() as i64 - i64::from(power * 3 / 10) - 1;
            let number = whole.parse::<i64>().ok().filter(|n| n.checked_mul(1 << power).is_some());
            fraction.is_empty()
                && parts.whole.len() < 16
                && estimate >= 0
                && number.is_some_and(|n| n & 7 != 0)
        }
        _ => {
            let scale = i64::from(power) - fraction.len() as i64;
            length <= 18
                && scale >= i64::from(NANO)
                && scale % 3 == 0
                && !whole.starts_with('0')
                && !ends_in_thousands(whole, fraction)
        }
    }
}

fn ends_in_thousands(whole: &str, fraction: &str) -> bool {
    whole.bytes().chain(fraction.bytes()).rev().take(3).filter(|&b| b == b'0').count() == 3
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    /// By value; the format is ignored.
    fn cmp(&self, other: &Quantity) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal || self.mantissa == 0 {
            return signs;
        }
        let (fine, coarse, flipped) =
            if self.exponent <= other.exponent { (self, other, false) } else { (other, self, true) };
        let difference = i64::from(coarse.exponent) - i64::from(fine.exponent);
        let scaled = u32::try_from(difference)
            .ok()
            .and_then(|d| 10i128.checked_pow(d))
            .and_then(|factor| coarse.mantissa.checked_mul(factor));
        let order = match scaled {
            Some(coarse) => fine.mantissa.cmp(&coarse),
            // The coarse one exceeds 128 bits, the fine one does not.
            None if coarse.mantissa > 0 => Ordering::Less,
            None => Ordering::Greater,
        };
        if flipped {
            order.reverse()
        } else {
            order
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn canonical(text: &str, expected: &str) {
        assert_eq!(Quantity::canonicalize(text).as_deref(), Ok(expected), "{text}");
    }

    #[test]
    fn sums_and_differences_are_exact() {
        // first, second, sum, difference
        let rows = [
            ("1", "500m", "1500m", "500m"),
            ("1Gi", "1Mi", "1025Mi", "1023Mi"),
            ("0", "1Gi", "1Gi", "-1Gi"),
            ("1G", "1Gi", "2073741824", "-73741824"),
        ];
        for (first, second, sum, difference) in rows {
            let (a, b) = (Quantity::parse(first).unwrap(), Quantity::parse(second).unwrap());
            assert_eq!((a.plus(b).canonical().as_str(), a.minus(b).canonical().as_str()), (sum, difference));
        }
    }

    #[test]
    fn canonical_forms_are_those_of_upstream() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("0Ki", "0"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("0.1", "100m"),
            ("1.5Gi", "1536Mi"),
            ("2048Mi", "2Gi"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("1000000", "1M"),
            ("1Ki", "1Ki"),
            ("8Ki", "8Ki"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1000e3", "1e6"),
            ("0.5Ki", "512"),
            ("0.001Ki", "1024m"),
            ("1.1", "1100m"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("-0.1n", "-1n"),
            ("1.0000000001", "1000000001n"),
            ("+1", "+1"),
            ("1.500", "1.500"),
            ("1.5", "1500m"),
            ("500Mi", "500Mi"),
            ("512Mi", "512Mi"),
            ("16Ei", "9223372036854775807"),
            ("1E", "1E"),
            ("1.", "1."),
            (".5", "500m"),
            // A suffix without a number is zero, as in upstream's scanner.
            ("Gi", "0"),
        ] {
            canonical(text, expected);
        }
    }

    #[test]
    fn canonical_form_is_stable() {
        for text in
            ["100m", "1536Mi", "2Gi", "1e6", "1024m", "-1n", "9223372036854775807", "12E", "3Ti", "1e-12"]
        {
            let once = Quantity::canonicalize(text).unwrap();
            canonical(&once, &once);
        }
    }

    #[test]
    fn errors_differ_by_cause() {
        for (text, error) in [
            ("", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("1Gi ", QuantityError::Format),
            ("abc", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("1Kii", QuantityError::Suffix),
            ("1i", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1e99999999999", QuantityError::Suffix),
        ] {
            assert_eq!(Quantity::canonicalize(text), Err(error), "{text}");
        }
    }

    #[test]
    fn order_is_by_value_and_never_overflows() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("1"), q("1000m"));
        assert!(q("1Ki") > q("1k"));
        assert!(q("-1") < q("1n"));
        assert!(q("1e1000000") > q("99999999999999999999999999999999999999"));
        assert!(q("-1e1000000") < q("-1"));
        assert_eq!(q("1500m").value(0), 2);
        assert_eq!(q("-1500m").value(0), -2);
        assert_eq!(q("1500m").value(-3), 1500);
        assert_eq!(q("1e1000000").value(0), i64::MAX);
        assert_eq!(q("1e1000000").canonical(), "10e999999");
    }
}
