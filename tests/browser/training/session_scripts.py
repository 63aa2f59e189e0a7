"""Scripts for the tests of TrainingSession in pages."""

CREATE = """
    const open = (more = {}) =>
      ew.TrainingSession.create(
        {
          checkpointState: "/files/artifacts/checkpoint",
          trainModel: "/files/artifacts/training_model.onnx",
          evalModel: "/files/artifacts/eval_model.onnx",
          optimizerModel: "/files/artifacts/optimizer_model.onnx",
          ...more.files,
        },
        { flavour: "simd128", ...more.options },
      );
    // one session of the page, for what cannot change it
    const shared = async () => (window.shared ??= await open());
    const batch = (i) => ({
      x: new ew.Tensor("float32", Float32Array.from(arg.x[i].flat()), [arg.x[i].length, 6]),
      labels: new ew.Tensor("int64", arg.y[i], [arg.y[i].length]),
    });
    const steps = async (s, from, to) => {
      const losses = [];
      for (let i = from; i < to; i++) {
        const out = await s.runTrainStep(batch(i));
        losses.push(out[s.trainingOutputNames[0]].data[0]);
        await s.runOptimizerStep();
        await s.lazyResetGrad();
      }
      return losses;
    };
    const base64 = (bytes) => btoa(String.fromCharCode(...bytes));
"""
