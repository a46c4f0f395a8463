package cli

import (
	"io"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
)

// noStack is above every level: where our own logger was called from helps
// nobody; the stack of a panic stands in the task's traceback.
const noStack slog.Level = 1 << 10

// newLogger makes the process's logger: zap behind the slog interface that
// the packages take. Text is for terminals, JSON for everything else.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	if format == "" {
		format = "json"
		if isTerminal(w) {
			format = "text"
		}
	}
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(enc)
	if format == "text" {
		enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		enc.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(enc)
	}
	lvl, err := zapcore.ParseLevel(level)
	if err != nil {
		lvl = zapcore.InfoLevel
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), lvl)
	return slog.New(zapslog.NewHandler(core, zapslog.AddStacktraceAt(noStack)))
}
