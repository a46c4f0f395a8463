package render

import "encoding/json"

// Params makes the data under .Params: all kwargs by name, and the positional
// arguments that have a name. Numbers keep their text. A parameter that is given
// twice, or that has no exact text, is [ErrValue].
func Params(names []string, args []json.RawMessage, kwargs map[string]json.RawMessage) (map[string]any, error) {
	params := make(map[string]any, len(names)+len(kwargs))
	return params, eachParam(names, args, kwargs, func(name string, text json.RawMessage) error {
		v, err := Value(text)
		if err != nil {
			return problemf(ErrValue, "parameter %q: %s", name, err)
		}
		params[name] = v
		return nil
	})
}

// ParamTexts is Params before decoding, as a fingerprint wants it.
func ParamTexts(names []string, args []json.RawMessage, kwargs map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	params := make(map[string]json.RawMessage, len(names)+len(kwargs))
	return params, eachParam(names, args, kwargs, func(name string, text json.RawMessage) error {
		params[name] = text
		return nil
	})
}

func eachParam(names []string, args []json.RawMessage, kwargs map[string]json.RawMessage, put func(string, json.RawMessage) error) error {
	for name, text := range kwargs {
		if err := put(name, text); err != nil {
			return err
		}
	}
	for i, name := range names[:min(len(names), len(args))] {
		if _, taken := kwargs[name]; taken {
			return problemf(ErrValue, "parameter %q is given by position and by name", name)
		}
		if err := put(name, args[i]); err != nil {
			return err
		}
	}
	return nil
}
