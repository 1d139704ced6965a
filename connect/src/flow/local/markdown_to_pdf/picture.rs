//! Images of a document: from the document itself or from the artifact store, never from the network.
//!
//! The dimensions are read from the file header before anything is decoded, because a small file can claim to be a
//! very large image.

use super::error::{RenderError, too_many};
use crate::flow::artifact;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chimera_core::limits::{PDF_IMAGE_BYTES_MAX, PDF_IMAGE_PIXELS_MAX};
use chimera_engine::flow::TenantBlobs;
use chimera_engine::flow::port::{CallContext, ToolError};
use krilla::image::Image;

/// An image that can be drawn.
pub(super) struct Picture {
    pub(super) image: Image,
    /// Width in pixels.
    pub(super) width: u32,
    /// Height in pixels.
    pub(super) height: u32,
}

/// Fetches the bytes of all images.
pub(super) async fn fetch(blobs: &TenantBlobs, ctx: &CallContext, sources: &[String]) -> Result<Vec<Bytes>, ToolError> {
    let mut room = PDF_IMAGE_BYTES_MAX;
    let mut all = Vec::with_capacity(sources.len());
    for (at, source) in sources.iter().enumerate() {
        let bytes = match source.strip_prefix("data:") {
            Some(data) => decoded(data, at + 1)?,
            None => artifact::fetch(blobs, ctx, source, room).await?,
        };
        room = room.checked_sub(bytes.len()).ok_or(too_many("bytes of images", PDF_IMAGE_BYTES_MAX))?;
        all.push(bytes);
    }
    Ok(all)
}

/// Reads the headers of all images.
pub(super) fn open(files: Vec<Bytes>) -> Result<Vec<Picture>, RenderError> {
    let mut room = PDF_IMAGE_PIXELS_MAX;
    let mut pictures = Vec::with_capacity(files.len());
    for (at, bytes) in files.into_iter().enumerate() {
        let refuse = |reason: &str| RenderError::Image { number: at + 1, reason: reason.to_owned() };
        let png = bytes.starts_with(b"\x89PNG\r\n\x1a\n");
        let size = if png { png_size(&bytes) } else { jpeg_size(&bytes) };
        let (width, height) = size
            .filter(|(width, height)| *width > 0 && *height > 0)
            .ok_or_else(|| refuse("it is neither a PNG nor a JPEG file"))?;
        room = room
            .checked_sub(u64::from(width) * u64::from(height))
            .ok_or_else(|| refuse("the images have too many pixels in total"))?;
        let data = bytes.to_vec().into();
        let image = if png { Image::from_png(data, true) } else { Image::from_jpeg(data, true) };
        let image = image.map_err(|_| refuse("the file is damaged"))?;
        pictures.push(Picture { image, width, height });
    }
    Ok(pictures)
}

fn decoded(data: &str, number: usize) -> Result<Bytes, RenderError> {
    let refuse = |reason: &str| RenderError::Image { number, reason: reason.to_owned() };
    let (kind, text) = data.split_once(',').ok_or_else(|| refuse("the data: address has no content"))?;
    if !kind.ends_with(";base64") {
        return Err(refuse("a data: address must be written in base64"));
    }
    STANDARD.decode(text).map(Bytes::from).map_err(|_| refuse("the data: address is not base64"))
}

fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    (bytes.get(12..16)? == b"IHDR").then_some(())?;
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    Some((number(16)?, number(20)?))
}

/// Width and height from the frame header, which follows any number of other segments.
fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    bytes.starts_with(&[0xff, 0xd8]).then_some(())?;
    let number = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let mut at = 2;
    loop {
        (*bytes.get(at)? == 0xff).then_some(())?;
        match *bytes.get(at + 1)? {
            0xff => at += 1,
            0xc4 | 0xc8 | 0xcc => at += 2 + usize::from(number(at + 2)?),
            0xc0..=0xcf => return Some((number(at + 7)?.into(), number(at + 5)?.into())),
            0x01 | 0xd0..=0xd8 => at += 2,
            _ => at += 2 + usize::from(number(at + 2)?).max(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_claims_too_many_pixels_is_refused_before_it_is_unpacked() {
        let mut head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        head.extend([0, 1, 0, 0, 0, 1, 0, 0, 8, 6, 0, 0, 0]);
        assert_eq!(png_size(&head), Some((65_536, 65_536)));
        assert!(open(vec![head.into()]).is_err());
    }

    #[test]
    fn the_frame_of_a_jpeg_is_found_behind_other_segments() {
        let file = [0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xc4, 0, 3, 9, 0xff, 0xc2, 0, 17, 8, 1, 0, 2, 3, 3];
        assert_eq!(jpeg_size(&file), Some((515, 256)));
        for end in 0..file.len() - 2 {
            assert_eq!(jpeg_size(&file[..end]), None, "{end}");
        }
    }

    #[test]
    fn what_is_no_image_is_refused_with_its_number() {
        let refusal = open(vec![Bytes::from_static(b"GIF89a")]).err().unwrap();
        assert_eq!(refusal.to_string(), "image 1 can't be shown: it is neither a PNG nor a JPEG file");
        assert!(decoded("image/png,abc", 2).is_err());
        assert!(decoded("image/png;base64,###", 2).is_err());
    }
}
