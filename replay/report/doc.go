// Package report makes one file of a session: a summary, a drawn timeline, what
// went wrong first, the transcript with its breadcrumbs, outputs that expand,
// and recordings that play. It opens without a network and prints well.
//
// Output is hostile here too: it is text that package look made harmless, the
// template escapes it, and the file's own content security policy lets in
// nothing but the style and the script that it was made with.
package report
