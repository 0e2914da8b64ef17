//! Numbers in arguments and values: their texts as Redis accepts and prints them.

use crate::wrong::Wrong;

/// Digits behind the point that sums of floating-point increments keep, as Redis prints them.
const FRACTION_DIGITS: usize = 17;
/// Absolute value from which on a whole number is not printed as an integer in any case.
const INTEGERS_BELOW: f64 = (1u64 << 52) as f64;

/// Parses an integer from `least` to `most`, for a setting.
///
/// # Errors
/// It is no integer, or `wrong` if it is out of bounds.
pub(crate) fn integer_within(
    text: &[u8],
    least: i64,
    most: i64,
    wrong: &'static str,
) -> Result<i64, &'static str> {
    let number = integer(text).ok_or("argument couldn't be parsed into an integer")?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(wrong) }
}

/// Parses an integer of 64 bits in the one form in which it is printed: no spaces, no `+`, no
/// leading zeros (Redis' `string2ll`). `None`: it is not one.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if digits.len() == text.len() => return Some(0),
        [b'1'..=b'9', rest @ ..] if rest.len() < 19 && rest.iter().all(u8::is_ascii_digit) => {}
        _ => return None,
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses an integer argument.
///
/// # Errors
/// It is none.
pub(crate) fn integer_argument(text: &[u8]) -> Result<i64, Wrong> {
    integer(text).ok_or(Wrong::not_an_integer())
}

/// Parses a timeout in milliseconds.
///
/// # Errors
/// It is no integer, or negative.
pub(crate) fn milliseconds_argument(text: &[u8]) -> Result<i64, Wrong> {
    match integer(text).ok_or(Wrong::err("timeout is not an integer or out of range"))? {
        number @ 0.. => Ok(number),
        _ => Err(Wrong::err("timeout is negative")),
    }
}

/// Parses a floating-point argument; infinities are numbers.
///
/// # Errors
/// It is none.
pub(crate) fn float_argument(text: &[u8]) -> Result<f64, Wrong> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    parsed.filter(|number| !number.is_nan()).ok_or(Wrong::not_a_float())
}

/// Returns the shortest text that is parsed as this number, in the form in which Redis 7.2 prints
/// scores and distances.
pub(crate) fn float_text(number: f64) -> String {
    if number.is_nan() || number.is_infinite() {
        let text = if number.is_nan() { "nan" } else { "inf" };
        return if number < 0.0 { "-inf".to_owned() } else { text.to_owned() };
    }
    if number.fract() == 0.0 && number.abs() < INTEGERS_BELOW {
        return (number as i64).to_string();
    }
    let text = format!("{:e}", number.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{}", decimal_text(&digits, exponent))
}

/// Returns the text of a number with `precision` digits at most, in the shorter of the forms with
/// and without an exponent, as C prints it by `%.*g`.
pub(crate) fn general_text(number: f64, precision: usize) -> String {
    let precision = precision.max(1);
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let text = format!("{number:.*e}", precision - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let mantissa = if mantissa.contains('.') { without_trailing_zeros(mantissa) } else { mantissa };
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let fraction = (precision as i32 - 1 - exponent).max(0) as usize;
    let text = format!("{number:.fraction$}");
    if text.contains('.') { without_trailing_zeros(&text).to_owned() } else { text }
}

/// Returns the text of a number with up to 17 digits behind the point, without trailing zeros.
pub(crate) fn long_text(number: f64) -> String {
    without_trailing_zeros(&format!("{number:.FRACTION_DIGITS$}")).to_owned()
}

/// Text of a positive number that is the digits, with a point behind the first, times ten to the
/// power of `exponent`.
fn decimal_text(digits: &str, exponent: i32) -> String {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // Zeros behind the digits; if negative, digits behind the point.
    let zeros = exponent.saturating_sub(count - 1);
    if zeros >= 0 && exponent < count + 7 {
        return format!("{digits}{}", "0".repeat(zeros as usize));
    }
    if zeros < 0 && (zeros > -7 || exponent.abs() < 4) {
        return match digits.split_at_checked(usize::try_from(count + zeros).unwrap_or(0)) {
            Some((whole, fraction)) if !whole.is_empty() => format!("{whole}.{fraction}"),
            _ => format!("0.{}{digits}", "0".repeat((-zeros - count).max(0) as usize)),
        };
    }
    let (first, rest) = digits.split_at(digits.len().min(1));
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{first}{point}{rest}e{sign}{}", exponent.unsigned_abs())
}

/// Returns the sum of two numbers by their texts, as text without trailing zeros: exact where both
/// have at most 17 digits behind the point, in floating point otherwise.
///
/// # Errors
/// `value` or `increment` is no number, or the sum is not finite.
pub(crate) fn float_sum(value: &[u8], increment: &[u8]) -> Result<String, Wrong> {
    if let Some(sum) = fixed(value).zip(fixed(increment)).and_then(|(a, b)| a.checked_add(b)) {
        return Ok(fixed_text(sum));
    }
    let sum = float_argument(value)? + float_argument(increment)?;
    if !sum.is_finite() {
        return Err(Wrong::float_overflow());
    }
    let text = format!("{sum:.FRACTION_DIGITS$}");
    Ok(without_trailing_zeros(&text).to_owned())
}

/// Parses a number without exponent, in units of the last digit that is kept.
fn fixed(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = are_digits(whole) && are_digits(fraction) && whole.len() + fraction.len() > 0;
    if !is_number || whole.len() > 19 || fraction.len() > FRACTION_DIGITS {
        return None;
    }
    let digits = format!("{whole}{fraction:0<FRACTION_DIGITS$}");
    let number: i128 = digits.parse().ok()?;
    Some(if is_negative { -number } else { number })
}

fn fixed_text(number: i128) -> String {
    let unit = 10u128.pow(FRACTION_DIGITS as u32);
    let (whole, fraction) = (number.unsigned_abs() / unit, number.unsigned_abs() % unit);
    let sign = if number < 0 { "-" } else { "" };
    let text = format!("{sign}{whole}.{fraction:0FRACTION_DIGITS$}");
    without_trailing_zeros(&text).to_owned()
}

fn without_trailing_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_form() {
        for number in [0, 1, -1, 42, i64::MAX, i64::MIN] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for text in
            ["", "-", "-0", "01", "+1", " 1", "1 ", "1.0", "9223372036854775808", "99999999999999999999"]
        {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn floats_have_the_shortest_text() {
        let cases = [
            (0.0, "0"),
            (3.0, "3"),
            (-17.5, "-17.5"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (3.1, "3.1"),
            (0.00001, "0.00001"),
            (0.0000001, "1e-7"),
            (1.5e-10, "1.5e-10"),
            (123456789.125, "123456789.125"),
            (1e15, "1000000000000000"),
            (1e17, "1e+17"),
            (-1.25e20, "-1.25e+20"),
            (12345678901234567890.0, "12345678901234567000"),
            (1e300, "1e+300"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in cases {
            assert_eq!(float_text(number), text);
            assert_eq!(text.parse::<f64>().unwrap(), number);
        }
        assert_eq!(float_text(f64::NAN), "nan");
    }

    #[test]
    fn sums_of_floats_are_as_people_expect() {
        let cases = [
            ("0.1", "0.2", "0.3"),
            ("3.0", "1.1", "4.1"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "200", "5200"),
            ("-1", "1", "0"),
            ("1", "-1.5", "-0.5"),
            ("17179869184", "1.5", "17179869185.5"),
        ];
        for (value, increment, sum) in cases {
            assert_eq!(float_sum(value.as_bytes(), increment.as_bytes()).unwrap(), sum);
        }
        assert_eq!(float_sum(b"x", b"1"), Err(Wrong::not_a_float()));
        assert_eq!(float_sum(b"1", b"inf"), Err(Wrong::float_overflow()));
        assert_eq!(float_sum(b".", b"1"), Err(Wrong::not_a_float()));
    }

    #[test]
    fn general_texts_are_those_of_c() {
        for (number, precision, text) in [
            (0.1, 17, "0.10000000000000001"),
            (0.1, 14, "0.1"),
            (1e15, 14, "1e+15"),
            (123456.0, 14, "123456"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (-1.5e300, 17, "-1.5000000000000001e+300"),
            (0.0, 14, "0"),
            (99999.5, 5, "1e+05"),
            (f64::NEG_INFINITY, 14, "-inf"),
        ] {
            assert_eq!(general_text(number, precision), text);
        }
    }
}
