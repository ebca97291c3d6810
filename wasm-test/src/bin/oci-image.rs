//! Packs the built module as an OCI image layout.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, io};

use clap::Parser;
use wasm_test::oci::{Form, Image, Labels};

/// Packs a module as an OCI image layout and prints the manifest's digest and the size
///
/// The same module and labels give the same digest on every machine. scripts/oci.sh calls this.
#[derive(Debug, Parser)]
#[command(name = "oci-image")]
struct Arguments {
    /// The module
    #[arg(long)]
    module: PathBuf,
    /// The folder to write; what is in it is removed
    #[arg(long)]
    output: PathBuf,
    /// The image's name in the layout
    #[arg(long)]
    tag: String,
    #[arg(long, value_enum, default_value = "image")]
    form: Form,
    /// The commit the module was built from
    #[arg(long)]
    revision: String,
    /// When that was committed, RFC 3339 in UTC
    #[arg(long)]
    created: String,
    /// URL of the source
    #[arg(long)]
    source: Option<String>,
}

fn pack(arguments: Arguments) -> io::Result<Image> {
    let labels = Labels {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: arguments.revision,
        created: arguments.created,
        source: arguments.source,
        licence: env!("CARGO_PKG_LICENSE").to_owned(),
    };
    let module = fs::read(&arguments.module)?;
    let image = Image::pack(&module, arguments.form, &labels);
    image.write_layout(&arguments.output, &arguments.tag)?;
    Ok(image)
}

fn main() -> ExitCode {
    match pack(Arguments::parse()) {
        Ok(image) => {
            println!("digest  {}", image.manifest.digest());
            println!("size    {} bytes", image.size());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("oci-image: {error}");
            ExitCode::FAILURE
        }
    }
}
