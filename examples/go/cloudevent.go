package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
)

// prefix begins the headers that are CloudEvents attributes, in binary mode.
const prefix = "ce-"

var versions = spec.WithPrefix(prefix)

// toCloudEvent is a message as the CloudEvents SDK has it.
func toCloudEvent(header nats.Header, data []byte) (*cloudevents.Event, error) {
	e, err := binding.ToEvent(context.Background(), message{header, data})
	if err != nil {
		return nil, fmt.Errorf("reading the event: %w", err)
	}
	return e, e.Validate()
}

// message is a NATS message for the SDK to read.
type message struct {
	header nats.Header
	data   []byte
}

var (
	_ binding.Message               = message{}
	_ binding.MessageMetadataReader = message{}
)

func (message) ReadEncoding() binding.Encoding { return binding.EncodingBinary }

func (message) ReadStructured(context.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

func (m message) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	version := versions.Version(m.header.Get(prefix + "specversion"))
	if version == nil {
		return binding.ErrUnknownEncoding
	}
	for name, values := range m.header {
		if err := m.readHeader(w, version, name, values[0]); err != nil {
			return err
		}
	}
	if len(m.data) == 0 {
		return nil
	}
	return w.SetData(bytes.NewReader(m.data))
}

func (m message) readHeader(w binding.BinaryWriter, version spec.Version, name, value string) error {
	if name == "content-type" {
		return w.SetAttribute(version.AttributeFromKind(spec.DataContentType), value)
	}
	if attribute := version.Attribute(name); attribute != nil {
		return w.SetAttribute(attribute, value)
	}
	if extension, ok := strings.CutPrefix(name, prefix); ok {
		return w.SetExtension(extension, value)
	}
	return nil
}

func (m message) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	version := versions.Version(m.header.Get(prefix + "specversion"))
	if version == nil {
		return nil, nil
	}
	attribute := version.AttributeFromKind(kind)
	if attribute == nil {
		return nil, nil
	}
	return attribute, m.header.Get(attribute.PrefixedName())
}

func (m message) GetExtension(name string) any { return m.header.Get(prefix + name) }

func (message) Finish(error) error { return nil }
