// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of PGM images to fields, and of fields to images.

use crate::HeatError;
use crate::field::{Field, check_size};
use image::codecs::png::PngEncoder;
use image::codecs::pnm::{GraymapHeader, PnmDecoder, PnmEncoder, PnmHeader, SampleEncoding};
use image::error::ImageError;
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::Path;

/// Mapping of temperatures to colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// The colours of a glowing body: black, red, yellow, white.
    #[default]
    Glow,
    /// Black to white.
    Grey,
}

/// Colours of the glow palette, at equal distances between 0 and 1.
const GLOW: [[f64; 3]; 6] = [
    [0.0, 0.0, 20.0],
    [90.0, 10.0, 90.0],
    [190.0, 30.0, 60.0],
    [240.0, 110.0, 20.0],
    [252.0, 205.0, 70.0],
    [255.0, 255.0, 235.0],
];

/// Reads a grey map, plain (P2) or raw (P5), with up to 65,535 shades. Black becomes 0, white 1.
///
/// # Errors
/// [`HeatError`] with the file and the problem.
pub fn read_pgm(path: &Path) -> Result<Field, HeatError> {
    let unreadable = |cause| HeatError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(unreadable(ErrorKind::IsADirectory.into()));
    }
    decode(BufReader::new(file)).map_err(|why| match why {
        Refusal::Size(error) => error,
        Refusal::Image(why) => HeatError::BadImage {
            path: path.to_owned(),
            why,
        },
    })
}

/// Writes a field as a raw (P5) grey map of 16 bits.
///
/// # Errors
/// [`HeatError::Unwritable`].
pub fn write_pgm(path: &Path, field: &Field) -> Result<(), HeatError> {
    let (width, height) = sides(field);
    let header = GraymapHeader {
        encoding: SampleEncoding::Binary,
        width,
        height,
        maxwhite: u32::from(u16::MAX),
    };
    let samples: Vec<u16> = field.cells().iter().map(|cell| shade16(*cell)).collect();
    create(path, |file| {
        let mut encoder = PnmEncoder::new(file).with_header(PnmHeader::from(header));
        encoder.encode(&samples[..], width, height, ExtendedColorType::L16)
    })
}

/// Writes a field as a PNG image.
///
/// # Errors
/// [`HeatError::Unwritable`].
pub fn write_png(path: &Path, field: &Field, palette: Palette) -> Result<(), HeatError> {
    let (width, height) = sides(field);
    let cells = field.cells().iter();
    let (pixels, colour): (Vec<u8>, _) = match palette {
        Palette::Glow => (
            cells.flat_map(|cell| glow(*cell)).collect(),
            ExtendedColorType::Rgb8,
        ),
        Palette::Grey => (
            cells.map(|cell| shade8(*cell)).collect(),
            ExtendedColorType::L8,
        ),
    };
    create(path, |file| {
        PngEncoder::new(file).write_image(&pixels, width, height, colour)
    })
}

/// Checks that a path can be written, before the work starts.
///
/// # Errors
/// [`HeatError::Unwritable`].
pub fn check_writable(path: &Path) -> Result<(), HeatError> {
    let refuse = |why: &str| {
        Err(HeatError::Unwritable {
            path: path.to_owned(),
            why: why.into(),
        })
    };
    if path.is_dir() {
        return refuse("it is a directory");
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
            refuse("its directory does not exist")
        }
        _ => Ok(()),
    }
}

enum Refusal {
    Size(HeatError),
    Image(String),
}

impl From<ImageError> for Refusal {
    fn from(error: ImageError) -> Self {
        Refusal::Image(match error {
            ImageError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
                "it ends before its last pixel".into()
            }
            error => error.to_string(),
        })
    }
}

fn decode(mut file: impl BufRead) -> Result<Field, Refusal> {
    let start = file.fill_buf().map_err(ImageError::IoError)?;
    if !start.starts_with(b"P2") && !start.starts_with(b"P5") {
        return Err(Refusal::Image("it does not start with P2 or P5".into()));
    }
    let decoder = PnmDecoder::new(file)?;
    let (width, height) = decoder.dimensions();
    let (width, height) = (width as usize, height as usize);
    check_size(width, height).map_err(Refusal::Size)?;
    let mut field = Field::new(width, height).map_err(Refusal::Size)?;
    // The decoder has stretched the shades to the full range of their type.
    match DynamicImage::from_decoder(decoder)? {
        DynamicImage::ImageLuma8(image) => {
            fill(
                &mut field,
                image
                    .into_raw()
                    .into_iter()
                    .map(|shade| f64::from(shade) / 255.0),
            );
        }
        DynamicImage::ImageLuma16(image) => {
            fill(
                &mut field,
                image
                    .into_raw()
                    .into_iter()
                    .map(|shade| f64::from(shade) / 65535.0),
            );
        }
        _ => return Err(Refusal::Image("its pixels are not grey".into())),
    }
    Ok(field)
}

fn fill(field: &mut Field, values: impl Iterator<Item = f64>) {
    for (cell, value) in field.cells_mut().iter_mut().zip(values) {
        *cell = value;
    }
}

fn create(
    path: &Path,
    encode: impl FnOnce(&mut BufWriter<File>) -> Result<(), ImageError>,
) -> Result<(), HeatError> {
    let unwritable = |why: String| HeatError::Unwritable {
        path: path.to_owned(),
        why,
    };
    let file = File::create(path).map_err(|error| unwritable(error.to_string()))?;
    let mut file = BufWriter::new(file);
    encode(&mut file).map_err(|error| unwritable(error.to_string()))?;
    file.flush().map_err(|error| unwritable(error.to_string()))
}

fn sides(field: &Field) -> (u32, u32) {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a field's sides are at most SIDE_MAX"
    )]
    let sides = (field.width() as u32, field.height() as u32);
    sides
}

fn shade8(value: f64) -> u8 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped before"
    )]
    let shade = (value.clamp(0.0, 1.0) * 255.0).round() as u8;
    shade
}

fn shade16(value: f64) -> u16 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped before"
    )]
    let shade = (value.clamp(0.0, 1.0) * 65535.0).round() as u16;
    shade
}

fn glow(value: f64) -> [u8; 3] {
    let place = value.clamp(0.0, 1.0) * 5.0;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to 4"
    )]
    let corner = place.floor().min(4.0) as usize;
    #[allow(clippy::cast_precision_loss, reason = "from 0 to 4")]
    let share = place - corner as f64;
    let (low, high) = (GLOW[corner], GLOW[corner + 1]);
    std::array::from_fn(|part| shade8((low[part] + share * (high[part] - low[part])) / 255.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn cells(bytes: &[u8]) -> Vec<f64> {
        match decode(bytes) {
            Ok(field) => field.cells().to_vec(),
            Err(Refusal::Image(why)) => panic!("{why}"),
            Err(Refusal::Size(error)) => panic!("{error}"),
        }
    }

    fn refusal(bytes: &[u8]) -> String {
        match decode(bytes) {
            Ok(field) => panic!("{field:?}"),
            Err(Refusal::Image(why)) => why,
            Err(Refusal::Size(error)) => error.to_string(),
        }
    }

    #[test]
    fn plain_and_raw_grey_maps_of_8_and_16_bits_are_read() {
        let plain8 = b"P2\n# a comment\n3 3\n255\n0 51 255\n0 0 0\n102 0 204\n";
        assert_eq!(cells(plain8), [0.0, 0.2, 1.0, 0.0, 0.0, 0.0, 0.4, 0.0, 0.8]);
        let plain16 = b"P2 3 3 65535 0 13107 65535 0 0 0 26214 0 1";
        assert_eq!(
            cells(plain16),
            [0.0, 0.2, 1.0, 0.0, 0.0, 0.0, 0.4, 0.0, 1.0 / 65535.0]
        );
        let raw8 = [
            b"P5 3 3 255\n".as_slice(),
            &[0, 51, 255, 0, 0, 0, 102, 0, 204],
        ]
        .concat();
        assert_eq!(cells(&raw8), cells(plain8));
        let samples = [0, 13107, 65535, 0, 0, 0, 26214, 0, 1u16].map(u16::to_be_bytes);
        let raw16 = [b"P5 3 3 65535\n".as_slice(), &samples.concat()].concat();
        assert_eq!(cells(&raw16), cells(plain16));
    }

    #[test]
    fn white_is_one_for_any_number_of_shades() {
        let few = b"P2 3 3 15 0 3 15 0 0 0 6 0 12";
        assert_eq!(cells(few), [0.0, 0.2, 1.0, 0.0, 0.0, 0.0, 0.4, 0.0, 0.8]);
    }

    #[test]
    fn damaged_images_are_refused_with_the_reason() {
        assert!(refusal(b"P5 3 3 255\n1234").contains("ends before its last pixel"));
        assert!(refusal(b"P6 3 3 255\n").contains("P2 or P5"));
        assert!(refusal(b"").contains("P2 or P5"));
        assert!(refusal(b"P5 2 9 255\n012345678901234567").contains("too small"));
        assert!(refusal(b"P5 99999 99999 255\n").contains("too large"));
        assert!(!refusal(b"P5 x y 255\n").is_empty());
        assert!(!refusal(b"P2 3 3 255 1 2 3 4 5 6 7 8 900").is_empty());
        assert!(!refusal(b"P5 3 3 0\n123456789").is_empty());
    }

    #[test]
    fn a_written_grey_map_reads_back_to_its_16_bits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("field.pgm");
        let field = sample::field(37, 21).unwrap();
        write_pgm(&path, &field).unwrap();
        let back = read_pgm(&path).unwrap();
        assert_eq!((back.width(), back.height()), (37, 21));
        for (cell, read) in field.cells().iter().zip(back.cells()) {
            assert!(
                (cell - read).abs() <= 0.5 / 65535.0 + f64::EPSILON,
                "{cell} {read}"
            );
        }
        let again = path.with_extension("again");
        write_pgm(&again, &back).unwrap();
        assert_eq!(read_pgm(&again).unwrap(), back);
    }

    #[test]
    fn pictures_have_the_fields_size_and_the_palettes_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("field.png");
        let mut field = Field::new(4, 3).unwrap();
        field.cells_mut()[5] = 1.0;
        write_png(&path, &field, Palette::Glow).unwrap();
        let image = image::open(&path).unwrap().into_rgb8();
        assert_eq!(image.dimensions(), (4, 3));
        assert_eq!(image.get_pixel(1, 1).0, [255, 255, 235]);
        assert_eq!(image.get_pixel(0, 0).0, [0, 0, 20]);
        write_png(&path, &field, Palette::Grey).unwrap();
        let image = image::open(&path).unwrap();
        assert_eq!(image.color(), image::ColorType::L8);
        assert_eq!(image.into_luma8().get_pixel(1, 1).0, [255]);
    }

    #[test]
    fn a_missing_file_and_a_missing_directory_are_named() {
        let error = read_pgm(Path::new("no/such.pgm")).unwrap_err().to_string();
        assert!(
            error.contains("no/such.pgm") && error.contains("--make-input"),
            "{error}"
        );
        let error = check_writable(Path::new("no/such/out.png"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("no/such/out.png"), "{error}");
        assert!(check_writable(Path::new("out.png")).is_ok());
    }
}
