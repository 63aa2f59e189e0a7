// The part of the worker for tasks on pictures.

import type { Tasks } from "../runner.ts";
import {
  backgroundRemoval,
  depthEstimation,
  imageFeatureExtraction,
  imageSegmentation,
  imageToImage,
  objectDetection,
} from "./dense-tasks.ts";
import { imageClassification } from "./image-tasks.ts";
import { keypointDetection } from "./keypoints.ts";
import { pictureQuestions } from "./questions.ts";

export { readImage } from "./decode.ts";
export { imageOf, perceive, processed, show } from "./image-tasks.ts";
export { Interpolation } from "./interpolation.ts";
export { applied, pictureOf, pixelValues, prepared, rotated, windowOf } from "./pictures.ts";

export const TASKS: Tasks = {
  "image-classification": imageClassification,
  "image-feature-extraction": imageFeatureExtraction,
  "object-detection": objectDetection,
  "image-segmentation": imageSegmentation,
  "background-removal": backgroundRemoval,
  "depth-estimation": depthEstimation,
  "image-to-image": imageToImage,
  "keypoint-detection": keypointDetection,
  "visual-question-answering": pictureQuestions,
};
