//! 8-bit floats, which Arrow does not have: each is shown as the `f32` that it is.

/// The value of an `e4m3fn`: no infinities, one NaN of either sign.
pub(crate) fn e4m3(bits: u8) -> f32 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 3 & 0xF), f32::from(bits & 7));
    match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => sign * fraction * 2_f32.powi(-9),
        _ => sign * (1.0 + fraction / 8.0) * 2_f32.powi(exponent - 7),
    }
}

/// The value of an `e5m2`.
pub(crate) fn e5m2(bits: u8) -> f32 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 2 & 0x1F), f32::from(bits & 3));
    match (exponent, bits & 3) {
        (31, 0) => sign * f32::INFINITY,
        (31, _) => f32::NAN,
        (0, _) => sign * fraction * 2_f32.powi(-16),
        _ => sign * (1.0 + fraction / 4.0) * 2_f32.powi(exponent - 15),
    }
}

/// The 8-bit float that is nearest to `value`, to even on a tie; `of` gives the value of bits. What is past the largest is
/// the infinity, or NaN where there is none.
pub(crate) fn nearest(value: f32, largest: u8, past: u8, of: fn(u8) -> f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return sign | 0x7F;
    }
    // Values ascend with their bits.
    let (mut low, mut high) = (0_u8, largest);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if of(middle) <= magnitude { low = middle } else { high = middle - 1 }
    }
    let step = of(low) - of(low.saturating_sub(1));
    let above = if low == largest { of(low) + step } else { of(low + 1) };
    let (down, up) = (magnitude - of(low), above - magnitude);
    let rounded_up = up < down || (up == down && low & 1 == 1);
    match (rounded_up, low == largest) {
        (false, _) => sign | low,
        (true, true) => sign | past,
        (true, false) => sign | (low + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back_as_its_bits() {
        for bits in 0..=u8::MAX {
            for (largest, past, of) in [(0x7E, 0x7F, e4m3 as fn(u8) -> f32), (0x7B, 0x7C, e5m2)] {
                let value = of(bits);
                if value.is_finite() {
                    assert_eq!(nearest(value, largest, past, of), bits, "{value}");
                }
            }
        }
    }

    #[test]
    fn known_values_are_right() {
        assert_eq!((e4m3(0x7E), e4m3(0x38), e4m3(1)), (448.0, 1.0, 2_f32.powi(-9)));
        assert_eq!((e5m2(0x7B), e5m2(0x3C), e5m2(0x7C)), (57_344.0, 1.0, f32::INFINITY));
        assert!(e4m3(0x7F).is_nan());
        // Halfway between 1 and 1.125: to the even one.
        assert_eq!(nearest(1.0625, 0x7E, 0x7F, e4m3), 0x38);
    }
}
